"""Engines as containers, through the docker SDK (the extra ``docker``).

Rules:

1. A container is *created*, its full id recorded, and only then *started*. A crash in between leaves an inert
   container that its nonce label finds.
2. It runs with an init (workers are reaped), without restart (a crash loop would hide as "starting"), is not removed
   at its end (logs, exit code and the out-of-memory mark are kept until the stop), and is published on loopback only,
   since docker opens published ports past the firewall.
3. Running, stopped and absent are told by the daemon's status codes, never by its texts. No answer is unknown, which
   keeps the lease.
4. Nothing is stopped or removed whose nonce label is not the record's. A stop is gentle first: a forced removal leaves
   workers of multi-process images behind (vllm-omni issue 2317).
5. Images are pulled before anything is reserved, with a time-out of their own.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import (
    Any,  # the docker SDK ships no types
    Final,
)

from tasc_compute.contracts import DockerReference, HandleReference, InstanceRecord, LaunchPlan
from tasc_compute.launchers.base import ExitStatus, InstallError, SpawnError, Start, StopOutcome
from tasc_compute.limits import DOCKER_CALL_S, DOCKER_PULL_S, DOCKER_SHM_BYTES
from tasc_compute.state import Liveness

NONCE_LABEL: Final = "tasc.instance.nonce"
NAME_LABEL: Final = "tasc.instance.name"
NAME_PREFIX: Final = "tasc-"
_UNIX: Final = "unix://"
_DEFAULT_ADDRESS: Final = "unix:///var/run/docker.sock"
_API_VERSION: Final = "1.43"
_LOG_LINES: Final = 200
_SIGNAL_BASE: Final = 128
_RUNNING: Final = frozenset({"running", "paused", "restarting", "removing"})


class DockerLauncher:
    """Starts, watches and stops engines as containers.

    Args:
        base_url: the daemon's address; that of the environment where it is ``None``. Nothing is opened before its use.
    """

    def __init__(self, base_url: str | None = None) -> None:
        self._base_url = base_url

    @property
    def _errors(self) -> Any:  # Any: no types
        import docker.errors  # here and not above: the import of an optional extra costs a third of a second

        return docker.errors

    def _connect(self, timeout_s: int) -> Any:  # Any: no types
        import docker

        address = self._base_url or os.environ.get("DOCKER_HOST") or _DEFAULT_ADDRESS
        if address.startswith(_UNIX) and not Path(address.removeprefix(_UNIX)).is_socket():
            # the SDK would try, and drop a socket that it never closes
            raise FileNotFoundError(errno.ENOENT, "there is no docker daemon")
        if self._base_url is not None:
            return docker.DockerClient(base_url=self._base_url, timeout=timeout_s, version=_API_VERSION)
        return docker.from_env(timeout=timeout_s)

    def install(self, plan: LaunchPlan) -> LaunchPlan:
        """Make sure that the image is here.

        Raises:
            InstallError: the daemon does not answer, or the image cannot be pulled.
        """
        image = plan.image or ""
        try:
            with contextlib.closing(self._connect(DOCKER_CALL_S)) as client:
                try:
                    client.images.get(image)
                    return plan
                except self._errors.NotFound:
                    pass
            with contextlib.closing(self._connect(DOCKER_PULL_S)) as client:
                client.images.pull(image, all_tags=False)
                return plan
        except self._errors.APIError as error:
            raise InstallError(
                f"the image cannot be pulled (status {error.status_code})", where=image, way_out=f"docker pull {image}"
            ) from None
        except (self._errors.DockerException, OSError):
            raise InstallError("the docker daemon does not answer", way_out="start docker, then try again") from None

    def start(self, start: Start, record: Callable[[HandleReference], None]) -> DockerReference:
        """Create a container, record its id, start it.

        Raises:
            SpawnError: it could not be created or started; nothing of it is left.
        """
        try:
            with contextlib.closing(self._connect(DOCKER_CALL_S)) as client:
                container = client.containers.create(**self._options(start))
                reference = DockerReference(str(container.id))
                try:
                    record(reference)
                    container.start()
                except BaseException:
                    with contextlib.suppress(self._errors.DockerException, OSError):
                        container.remove(force=True)
                    raise
                return reference
        except self._errors.APIError as error:
            raise SpawnError(
                f"docker refused the container (status {error.status_code})", way_out="docker events, docker info"
            ) from None
        except (self._errors.DockerException, OSError):
            raise SpawnError("the docker daemon does not answer", way_out="start docker, then try again") from None

    def _options(self, start: Start) -> dict[str, Any]:  # Any: keyword arguments of the SDK
        plan, devices = start.plan, start.devices
        options: dict[str, Any] = {
            "image": plan.image,
            "command": list(plan.argv),
            "name": NAME_PREFIX + start.name,
            "labels": {NONCE_LABEL: start.nonce, NAME_LABEL: start.name},
            "environment": dict(plan.env),
            "ports": {f"{binding.container}/tcp": ("127.0.0.1", binding.host) for binding in plan.ports},
            "volumes": {
                mount.from_: {"bind": mount.to, "mode": "ro" if mount.read_only else "rw"} for mount in plan.mounts
            },
            "init": True,
            "restart_policy": {"Name": "no"},
            "detach": True,
        }
        if devices.gpu_ids:
            # the SDK sends a list, so the quoting that the command line needs does not arise
            options["device_requests"] = [
                {"Driver": "", "Count": 0, "DeviceIDs": list(devices.gpu_ids), "Capabilities": [["gpu"]], "Options": {}}
            ]
        if devices.nodes:
            options["devices"] = [f"{node}:{node}:rwm" for node in devices.nodes]
        if devices.groups:
            options["group_add"] = [str(group) for group in devices.groups]
        if devices.security_options:
            options["security_opt"] = list(devices.security_options)
        if len(plan.devices) > 1:
            options["shm_size"] = DOCKER_SHM_BYTES
        return options

    # --- proofs -------------------------------------------------------------------------------------------------------

    def _state(self, record: InstanceRecord) -> tuple[Liveness, dict[str, Any]]:  # Any: docker's JSON
        """Liveness, and docker's State object of a container that exists and is ours."""
        reference = record.ref
        if not isinstance(reference, DockerReference):
            return Liveness.UNKNOWN, {}
        try:
            with contextlib.closing(self._connect(DOCKER_CALL_S)) as client:
                attributes = client.api.inspect_container(reference.container)
        except self._errors.NotFound:
            return Liveness.GONE, {}
        except (self._errors.DockerException, OSError):
            return Liveness.UNKNOWN, {}
        if attributes["Config"]["Labels"].get(NONCE_LABEL) != record.nonce:
            return Liveness.GONE, {}
        state: dict[str, Any] = attributes["State"]
        created = state.get("Status") == "created"
        return (Liveness.ALIVE if created or state.get("Status") in _RUNNING else Liveness.GONE), state

    def liveness(self, record: InstanceRecord) -> Liveness:
        """Whether the container runs, or may run; unknown where the daemon does not answer."""
        return self._state(record)[0]

    def exit_status(self, record: InstanceRecord) -> ExitStatus:
        """Exit code, signal and the out-of-memory mark of a stopped container."""
        liveness, state = self._state(record)
        if liveness is not Liveness.GONE or "ExitCode" not in state:
            return ExitStatus()
        code = int(state["ExitCode"])
        oom = state.get("OOMKilled") is True
        if code == _SIGNAL_BASE + 9:
            return ExitStatus(signal="SIGKILL", out_of_memory=oom)
        return ExitStatus(exit_code=code, out_of_memory=oom)

    def owns_port(self, record: InstanceRecord) -> bool | None:
        """Docker's own proxy listens, so this cannot be told from the host's process table."""
        del record
        return None

    def remember(self, record: InstanceRecord) -> Mapping[int, str]:
        """A container is proved by its label; its processes need not be known."""
        del record
        return {}

    def find(self, nonce: str) -> DockerReference | None:
        """The container that carries a nonce."""
        try:
            with contextlib.closing(self._connect(DOCKER_CALL_S)) as client:
                found = client.api.containers(all=True, filters={"label": f"{NONCE_LABEL}={nonce}"})
        except (self._errors.DockerException, OSError):
            return None
        return DockerReference(str(found[0]["Id"])) if found else None

    # --- end ----------------------------------------------------------------------------------------------------------

    def stop(self, record: InstanceRecord, grace_ms: int) -> StopOutcome:
        """Stop and remove the container (rule 4)."""
        liveness, state = self._state(record)
        reference = record.ref
        if liveness is Liveness.UNKNOWN or not isinstance(reference, DockerReference):
            return StopOutcome.UNREACHABLE
        if not state:
            return StopOutcome.ABSENT
        grace_s = -(-grace_ms // 1000)
        try:
            with contextlib.closing(self._connect(DOCKER_CALL_S + grace_s)) as client:
                if liveness is Liveness.ALIVE:
                    client.api.stop(reference.container, timeout=grace_s)
                client.api.remove_container(reference.container, force=True)
        except self._errors.NotFound:
            return StopOutcome.STOPPED
        except self._errors.APIError:
            return StopOutcome.SURVIVED
        except (self._errors.DockerException, OSError):
            return StopOutcome.UNREACHABLE
        return StopOutcome.STOPPED

    def log_tail(self, record: InstanceRecord, log_path: Path, limit: int) -> str:
        """The end of the container's output."""
        del log_path
        if not isinstance(record.ref, DockerReference):
            return ""
        try:
            with contextlib.closing(self._connect(DOCKER_CALL_S)) as client:
                data = client.api.logs(record.ref.container, tail=_LOG_LINES, stdout=True, stderr=True)
        except (self._errors.DockerException, OSError):
            return ""
        text = bytes(data)[-limit:]
        if len(data) > limit and (cut := text.find(b"\n")) >= 0:
            text = text[cut + 1 :]
        return text.decode("utf-8", "replace")
