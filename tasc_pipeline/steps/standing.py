"""Whether a window that is being sent still stands on somebody's word: authorization, revocation and keys, read again.

Rules:

1. The two keys that the study names must be able to sign now, and the operator's key must have been trusted when it
   signed the approval or the authorization: a revocation may be dated earlier than that.
2. A standing authorization must be in force now.
3. A revocation and an end are final, so what is left of the window is never sent. Anything else may come right again: a
   file that is missing or cannot be verified, a key that is not in the key ring or not valid yet (a clock that stepped
   back). It stops the run, and leaves the rest as it is.
"""

from __future__ import annotations

from tasc_collector.contracts.fault import FaultReason
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.errors import NotAuthorized
from tasc_collector.shadow.standing import Look
from tasc_collector.transport.clock import Clock
from tasc_pipeline.control.authorizations import Ended, ended
from tasc_pipeline.home import authorizations, keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import ApprovedPlan

_REASONS = {Ended.REVOKED: FaultReason.AUTHORIZATION_REVOKED, Ended.EXPIRED: FaultReason.AUTHORIZATION_EXPIRED}


def standing_word(home: Home, approved: ApprovedPlan, clock: Clock) -> Look:
    """A function that reads the word of a window again: why it is over, or None.

    Args:
        home: the state folder.
        approved: the window's plan, as it was when the run began.
        clock: for the instant of each look.
    """
    pin = approved.pinned_by
    plan = approved.plan.record

    def look() -> FaultReason | None:
        at, ring = timestamp_of_ms(clock.wall_ns() // 1_000_000), keys.read_ring(home)
        signer = pin.signature.authority_key_id
        signed_at = approved.approved_at if approved.authorization is None else approved.authorization.record.issued_at
        try:
            signers.require_authorities(ring, approved.study, at)
            keys.public_key(ring, signer, ("operator",), signed_at, where=plan.window_key)
        except NotAuthorized:
            if signers.authority_ended(ring, approved.study, at) or _operator_ended(ring, signer, signed_at):
                return FaultReason.KEY_ENDED
            raise
        if approved.authorization is None:
            return None
        held = authorizations.held_by_digest(home, ring, plan.study_id, str(plan.authorization_digest))
        found = ended(held.authorization.record, held.revocation, at)
        return None if found is None else _REASONS[found]

    return look


def _operator_ended(ring: KeyRing, key_id: str, signed_at: str) -> bool:
    """Whether an operator's key of the ring was not trusted any more when it signed."""
    return any((key.key_id, key.role) == (key_id, "operator") and keys.has_ended(key, signed_at) for key in ring.keys)
