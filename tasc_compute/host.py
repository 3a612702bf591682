"""What this host is, as far as planning needs to know."""

from __future__ import annotations

import contextlib
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor, HostArch, HostPlatform, HostProfile

_PLATFORMS: Final = {"linux": HostPlatform.LINUX, "darwin": HostPlatform.DARWIN, "win32": HostPlatform.WIN32}
_ARM: Final = frozenset({"arm64", "aarch64"})


def host_profile(accelerators: Sequence[AcceleratorInfo] = (), *, docker_gpu: bool | None = None) -> HostProfile:
    """The profile of this host.

    Args:
        accelerators: what a device snapshot found, the preferred first; empty means a host that computes with its
            CPU. Apple silicon is Metal. Where several kinds stand side by side, the first one's kind counts.
        docker_gpu: whether docker passes GPUs through, if known; ``None`` assumes what the platform makes likely: a
            docker command on Linux with an accelerator. A container that cannot see its devices ends early and says
            so.
    """
    system, arch = host_platform(), host_arch()
    wsl = system is HostPlatform.LINUX and is_wsl()
    real = [item for item in accelerators if _computes(item)]
    if real:
        accelerator = real[0].accelerator
    else:
        metal = system is HostPlatform.DARWIN and arch is HostArch.ARM64
        accelerator = Accelerator.METAL if metal else Accelerator.CPU
    same = [item for item in real if item.accelerator is accelerator]
    docker = shutil.which("docker") is not None
    passes = docker and system is HostPlatform.LINUX and bool(real) if docker_gpu is None else docker_gpu
    return HostProfile(
        node_id="self",
        platform=system,
        arch=arch,
        accelerator=accelerator,
        unified_memory=accelerator is Accelerator.METAL or (bool(same) and all(item.unified_memory for item in same)),
        wsl=wsl,
        docker=docker,
        docker_gpu=passes and system is not HostPlatform.DARWIN,
        device_count=len(same),
    )


def host_platform() -> HostPlatform:
    """This operating system's family."""
    return _PLATFORMS.get(sys.platform, HostPlatform.LINUX)


def host_arch() -> HostArch:
    """This processor's architecture."""
    return HostArch.ARM64 if platform.machine().lower() in _ARM else HostArch.X64


def _computes(item: AcceleratorInfo) -> bool:
    """Whether a device decides what a host computes with: not a processor, nor the display of an Intel processor."""
    display = item.vendor is DeviceVendor.INTEL and item.unified_memory
    return item.accelerator is not Accelerator.CPU and not display


def is_wsl(proc: Path = Path("/proc")) -> bool:
    """Whether this Linux runs inside WSL: its kernel's release names Microsoft, or it can start Windows programs."""
    with contextlib.suppress(OSError):
        if "microsoft" in (proc / "sys/kernel/osrelease").read_text().lower():
            return True
    return (proc / "sys/fs/binfmt_misc/WSLInterop").exists()
