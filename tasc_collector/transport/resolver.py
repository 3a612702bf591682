"""From an origin to one pinned address.

Rules:

1. A literal is its own answer; nothing is looked up.
2. A name is resolved anew for every call, in a thread of its own, with a deadline of its own. ``getaddrinfo`` cannot be
   cancelled, so the thread is left behind when the deadline passes; at most ``MAX_STUCK_LOOKUPS`` may be behind.
3. There are 1 to 32 answers and *every* one may be reached; one that may not refuses the whole lookup.
4. The first answer is pinned: the connection goes there and nowhere else.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence

from tasc_collector.errors import DispatchState, TransportError
from tasc_collector.limits import MAX_DNS_ANSWERS, MAX_STUCK_LOOKUPS
from tasc_collector.transport.addresses import Address, Network, parse_address, private_refusal, public_refusal
from tasc_collector.transport.codes import CATEGORY_OF, Code
from tasc_collector.transport.origins import HostKind, Origin

_slots = threading.BoundedSemaphore(MAX_STUCK_LOOKUPS)


def not_sent(code: Code) -> TransportError:
    """The error of a call that ended before its first byte."""
    return TransportError(code, DispatchState.NOT_SENT, CATEGORY_OF[code])


def refusal(address: Address, networks: Sequence[Network]) -> str | None:
    """Why a resolved address may not be reached: by the endpoint's private networks where it has any, else as a
    public one.
    """
    return private_refusal(address, networks) if networks else public_refusal(address)


def choose(origin: Origin, answers: Sequence[str], networks: Sequence[Network]) -> Address:
    """Check every answer of a lookup and return the one to connect to (rules 3 and 4).

    Args:
        origin: where the call goes.
        answers: literal addresses in the resolver's order; for a literal origin, just that.
        networks: private networks of the endpoint, empty where it has none.

    Raises:
        TransportError: ``resolve-failed`` or ``address-refused``, both not sent.
    """
    if not 1 <= len(answers) <= MAX_DNS_ANSWERS:
        raise not_sent(Code.RESOLVE_FAILED)
    addresses = [parse_address(answer) for answer in answers]
    for address in addresses:
        if address is None:
            raise not_sent(Code.ADDRESS_REFUSED)
        if origin.kind is not HostKind.LOOPBACK and refusal(address, networks) is not None:
            raise not_sent(Code.ADDRESS_REFUSED)
    first = addresses[0]
    if first is None or (origin.kind is HostKind.LOOPBACK and not first.is_loopback):
        raise not_sent(Code.ADDRESS_REFUSED)
    return first


async def lookup(host: str, port: int) -> list[str]:
    """All addresses of a name, in the system's order, without repeats. Cancel it to stop waiting.

    Raises:
        TransportError: ``resolve-failed``, not sent; also where too many earlier lookups never came back.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[str]] = loop.create_future()
    if not _slots.acquire(blocking=False):
        raise not_sent(Code.RESOLVE_FAILED)

    def deliver(answers: list[str] | None) -> None:
        if future.done():
            return
        if answers is None:
            future.set_exception(not_sent(Code.RESOLVE_FAILED))
        else:
            future.set_result(answers)

    def work() -> None:
        answers: list[str] | None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        except (OSError, UnicodeError):
            answers = None
        finally:
            _slots.release()
        try:
            loop.call_soon_threadsafe(deliver, answers)
        except RuntimeError:
            return  # the loop was closed while the system was still looking

    threading.Thread(target=work, name="tasc-lookup", daemon=True).start()
    return await future
