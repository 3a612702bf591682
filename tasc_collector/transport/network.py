"""The two effects of the transport on the outside: a lookup, and a connected socket. Everything else is computed."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import platform
import socket
import struct
import sys
from functools import cache
from typing import Final, Protocol

from tasc_collector.transport.addresses import Address
from tasc_collector.transport.codes import Code
from tasc_collector.transport.resolver import lookup, not_sent

_GENERIC_ABI = frozenset({"x86_64", "aarch64", "i386", "i686", "armv7l", "riscv64", "ppc64le", "s390x", "loongarch64"})
SO_TIMESTAMPNS: Final[int | None] = 35 if sys.platform == "linux" and platform.machine() in _GENERIC_ABI else None
"""Socket option of kernel receive times (Linux ``asm-generic/socket.h``); None where the system has none for TCP."""
_RESET = struct.pack("ii", 1, 0)


class NetworkAccess(Protocol):
    """What a call needs of the network. Tests give one that counts and redirects."""

    async def resolve(self, host: str, port: int) -> list[str]:
        """All addresses of a name."""
        ...

    async def connect(self, address: Address, port: int) -> socket.socket:
        """A connected non-blocking socket."""
        ...

    def peer(self, sock: socket.socket) -> str:
        """The literal address at the other end, as the kernel knows it."""
        ...


class SystemNetwork:
    """The machine's network."""

    __slots__ = ()

    async def resolve(self, host: str, port: int) -> list[str]:
        """Ask the system's resolver."""
        return await lookup(host, port)

    async def connect(self, address: Address, port: int) -> socket.socket:
        """Connect to exactly this address: no other family, no second try.

        Raises:
            TransportError: ``connect-refused`` or ``connect-failed``, not sent.
        """
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        try:
            keep_stamping()
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            raise not_sent(Code.CONNECT_FAILED) from None
        try:
            prepare_socket(sock)
            await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
        except OSError as error:
            sock.close()
            refused = error.errno == errno.ECONNREFUSED
            raise not_sent(Code.CONNECT_REFUSED if refused else Code.CONNECT_FAILED) from None
        except BaseException:
            sock.close()
            raise
        return sock

    def peer(self, sock: socket.socket) -> str:
        """``getpeername``, without port."""
        return str(sock.getpeername()[0])


def prepare_socket(sock: socket.socket) -> None:
    """Make a socket non-blocking, unbuffered, and stamped by the kernel where it can."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if SO_TIMESTAMPNS is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError:
            return  # a kernel without it: reads then carry no kernel time


@cache
def keep_stamping() -> None:
    """Keep kernel receive times on for the life of the process, by a socket that is never connected.

    Linux stamps packets only while some socket wants it, and turns that on a moment *after* the first one asked;
    without this the first reads of a lonely call would have no time.
    """
    if SO_TIMESTAMPNS is None:
        return
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    atexit.register(keeper.close)
    with contextlib.suppress(OSError):
        keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def has_kernel_times(sock: socket.socket) -> bool:
    """True if reads of a socket carry the kernel's receive time."""
    if SO_TIMESTAMPNS is None:
        return False
    try:
        return sock.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS) != 0
    except OSError:
        return False


def reset(sock: socket.socket) -> None:
    """Close with a reset, so that no queued byte leaves any more (``SO_LINGER`` 0)."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass  # already reset by the peer
    finally:
        sock.close()
