"""Every exception of the compute layer.

::

    ComputeError            what, where, field, rule, way out
    ├── RecipeError         a recipe file or argument breaks a rule; nothing was changed
    ├── ContractError       JSON is not the record that was expected
    ├── StoreError          the instance folder cannot be trusted, locked or written
    └── LaunchFailed        a launch ended in one of the contract's failures; ``failure`` says which

The collector has a tree of its own: neither package may import the other. Messages hold no prompt, output, secret or
environment value. The library raises, ``render`` and the command line format.
"""

from __future__ import annotations

from tasc_compute.contracts import LaunchFailure


class ComputeError(Exception):
    """Base of the compute layer's errors.

    Args:
        what: one sentence that says what is wrong.
        where: file name, record or command it is about, if any.
        field: dotted path of the field, if any.
        rule: the rule that was broken, where ``what`` does not say it.
        way_out: what the reader can do next; a command where there is one.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        field: str | None = None,
        rule: str | None = None,
        way_out: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.where, self.field, self.rule, self.way_out = what, where, field, rule, way_out

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.field) if part)
        text = f"{place}: {self.what}" if place else self.what
        if self.rule:
            text += f" (rule: {self.rule})"
        return f"{text} -> {self.way_out}" if self.way_out else text


class RecipeError(ComputeError):
    """A recipe or an argument breaks a rule; nothing was changed."""


class ContractError(ComputeError):
    """JSON is not the record that was expected."""


class StoreError(ComputeError):
    """The instance folder cannot be trusted, locked or written."""


class LaunchFailed(ComputeError):
    """A launch ended in one of the contract's failures. Made by ``lifecycle`` only, rendered by ``render`` only.

    Args:
        failure: the contract's value; it is the whole truth, the text is only its kind.
        detail: who holds what is missing, and the way out, where the contract's value has no room for it.
        record_kept: True where the engine could not be proved gone, so that its record (the lease) stays.
    """

    def __init__(self, failure: LaunchFailure, *, detail: str | None = None, record_kept: bool = False) -> None:
        super().__init__(failure.kind, rule=detail)
        self.failure, self.detail, self.record_kept = failure, detail, record_kept
