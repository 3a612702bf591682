"""Small tools for faults that edit an HTTP response or its writes."""

from __future__ import annotations

from dataclasses import replace

from tasc_collector.contract_servers.plan import End, Piece, Plan, Wire, Write


def half(plan: Plan) -> tuple[Piece, ...]:
    """The body up to the plan's break; of a body in one piece its first half, at least one byte of it."""
    if len(plan.pieces) > 1:
        return plan.pieces[: plan.break_at]
    return tuple(Piece(piece.due_s, piece.data[: max(1, len(piece.data) // 2)]) for piece in plan.pieces)


def with_headers(plan: Plan, *headers: tuple[str, str]) -> Plan:
    """The plan with more headers at the end."""
    return replace(plan, headers=(*plan.headers, *headers))


def without_media(plan: Plan) -> Plan:
    """The plan without Content-Type."""
    return replace(plan, headers=tuple(pair for pair in plan.headers if pair[0].lower() != "content-type"))


def only(*writes: Write, end: End) -> Wire:
    """A wire that writes this and ends."""
    return Wire(writes, end, keep_alive=False)


def listed(wire: Wire) -> list[Write]:
    """The writes of a finite wire, none of them stamped later: these faults cut bytes, not events."""
    stamp = wire.stamp
    return [
        Write(write.due_s, stamp(write.data, 0) if write.stamped and stamp is not None else write.data)
        for write in wire.writes
    ]


def part_head(wire: Wire) -> tuple[bytes, list[Write]]:
    """The head's bytes and the other writes; a head that shares its write with the body is parted from it."""
    writes = listed(wire)
    head, mark, rest = writes[0].data.partition(b"\r\n\r\n")
    others = [Write(writes[0].due_s, rest)] if rest else []
    return head + mark, others + writes[1:]


def plain(wire: Wire, *writes: Write) -> Wire:
    """The wire with these writes instead, nothing stamped."""
    return replace(wire, writes=writes, stamp=None)
