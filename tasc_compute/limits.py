"""Every bound of the compute layer, named, with its reason."""

from __future__ import annotations

from typing import Final

MAX_RECORD_BYTES: Final = 64 * 1024
"""Largest instance record that is read. A record is about 600 bytes; a larger file is damaged and counts as held."""

MAX_RECIPE_BYTES: Final = 256 * 1024
"""Largest recipe file that is read; a person writes it."""

MAX_NAME_LENGTH: Final = 63
"""Longest instance name; it becomes a DNS label and a container name."""

LOG_TAIL_BYTES: Final = 4096
"""Bytes of an engine's log that a failure carries: enough for the traceback's end, too few for a request dump."""

MAX_HEALTH_BODY_BYTES: Final = 64 * 1024
"""Most bytes of a health answer that are read; more is not a health answer."""

LOCK_WAIT_MS: Final = 60_000
"""Longest wait for the placement lock. It is held for milliseconds; 200 launchers in line take seconds."""

LOCK_POLL_MS: Final = 5
"""First time between two tries for a lock: flock has no time-out. It doubles up to ``LOCK_POLL_MOST_MS``."""

LOCK_POLL_MOST_MS: Final = 80
"""Longest time between two tries for a lock: hundreds of waiting launchers must not fill a small machine with tries."""

STOP_POLL_MS: Final = 50
"""Time between two looks at a process group that was told to end."""

KILL_WAIT_MS: Final = 10_000
"""Longest wait after SIGKILL. What still lives then sits in a driver (state D): the lease is kept (unsloth 3331)."""

SPAWN_WAIT_MS: Final = 15_000
"""Longest wait for the gate process to replace itself with the engine; a loaded machine needs seconds."""

SHARED_START_WAIT_MS: Final = 1_800_000
"""Longest wait for another engine that is starting on the same shared device: as long as the slowest ready deadline.

Two engines that profile memory at once mis-size their caches (vLLM issues 55827, 56830).
"""

DEVICE_SETTLE_MS: Final = 15_000
"""Longest wait until foreign processes leave a device; memory comes back seconds after an exit (ollama issue 9160)."""

DEVICE_SETTLE_POLL_MS: Final = 500
"""Time between two looks at a device that is settling."""

HEALTH_MISSES: Final = 3
"""Consecutive failed checks before a ready engine is reported unhealthy: a busy one misses a check (ray 54070)."""

PORT_SCAN: Final = 512
"""Ports tried upward from an engine's base port before there is none."""

MAX_PORT: Final = 65_535
"""Highest TCP port."""

DOCKER_CALL_S: Final = 30
"""Time-out of one call to the docker daemon, except pulls."""

DOCKER_PULL_S: Final = 3_600
"""Time-out of an image pull; engine images are 10 to 20 GB."""

DOCKER_SHM_BYTES: Final = 16 * 1024**3
"""Shared memory of a container that uses several devices; NCCL needs more than docker's 64 MiB (vLLM docker docs)."""

# --- devices: probes that only read ---

TOOL_TIMEOUT_MS: Final = 5_000
"""Longest run of one vendor tool. A healthy one answers within a second; a lost GPU never does (gpud pull 117)."""

TOOL_REAP_MS: Final = 1_000
"""Longest wait for a killed tool. What still lives then sits in a driver (state D) and is reaped later."""

TOOL_MAX_BYTES: Final = 4 * 1024 * 1024
"""Most output of a tool that is read; sixteen GPUs with their processes give about 200 KiB."""

SURVEY_BUDGET_MS: Final = 15_000
"""Longest time that all tools of one survey may take together."""

READING_TIMEOUT_MS: Final = 5_000
"""Longest look at disks or sensors; a vendor's probe gets the survey's budget on top, because it runs tools."""

SYSFS_MAX_BYTES: Final = 64 * 1024
"""Most bytes of one file of /proc or /sys that are read; only the processor list of a large host comes near."""

MAX_DEVICES: Final = 256
"""Accelerators of one host that are looked at, MIG slices included."""

MAX_VOLUMES: Final = 64
"""File systems of one host that are looked at."""

MAX_SENSORS: Final = 256
"""Temperature sensors of one host that are looked at."""

CPU_SAMPLE_MS: Final = 100
"""Shortest time over which a processor's utilization is measured: ten clock ticks."""
