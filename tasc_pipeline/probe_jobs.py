"""Jobs that probe. Each is started by a person, or (all but the consumptive one) requested by a schedule or a sensor.

Rules:

1. Dagster is no authority: the state folder's trust policy decides what may be asked, in every job.
2. ``probe_canary`` and ``probe_consumptive`` need the effect named in the run's config, and it must be exactly the job's
   own. Nothing has a default. A canary that a schedule requests names its standing authorization, too, and is paid from
   its ledger before anything is sent.
3. A refusal ends the run as failed with our message and is never retried. A receipt that does not show the capability
   is stored, and the run fails, as the command does.
"""

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_collector.limits import RECEIPT_HOURS
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_pipeline.assets.endpoints import observation_of
from tasc_pipeline.clock import utc_now
from tasc_pipeline.failures import failure_of
from tasc_pipeline.home import Home
from tasc_pipeline.jobs import NO_RETRY
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps.endpoints import endpoints_view
from tasc_pipeline.steps.probe import ProbeOptions, StoredProbe, probe_endpoint
from tasc_pipeline.steps.probe_rounds import probe_passively
from tasc_pipeline.steps.spending import ProbeWord


class PassiveConfig(dg.Config):
    """Which study's endpoints are observed.

    Args:
        study: id of the study.
        valid_hours: how long the receipts hold.
    """

    study: str
    valid_hours: float = RECEIPT_HOURS


class ActiveConfig(dg.Config):
    """One probe that makes a server work or takes something from it.

    Args:
        endpoint: STUDY/ALIAS.
        capability: what is to be shown.
        effect: the effect that you allow; must be exactly the job's own.
        valid_hours: how long the receipt holds.
        authorization: id of the standing authorization, where a schedule requested the probe.
        request: name of that request; each is probed once.
    """

    endpoint: str
    capability: str
    effect: str
    valid_hours: float = RECEIPT_HOURS
    authorization: str = ""
    request: str = ""


@dg.op(description="Every observation that only reads, of every endpoint of a study; one signed receipt each.")
def probe_study_passively(context: dg.OpExecutionContext, config: PassiveConfig, state: StateFolder) -> None:
    """Probe, then observe what is known now."""
    home = state.home()
    try:
        done = probe_passively(home, config.study, valid_hours=config.valid_hours)
    except TascError as error:
        raise failure_of(error) from None
    for item in done.refused:
        context.log.info(f"refused, nothing sent: {item.why}")
    context.log.info(f"{len(done.stored)} receipts stored, {len(done.refused)} probes refused")
    _observe(context, home)


@dg.op(description="One inference canary of one endpoint: a few tokens are generated. The effect must be named.")
def send_canary(context: dg.OpExecutionContext, config: ActiveConfig, state: StateFolder) -> None:
    """Send the canary and store its receipt."""
    _probe_once(context, config, state.home(), Effect.INFERENCE_CANARY)


@dg.op(description="One read that takes something away from a server. The effect must be named.")
def read_consumptively(context: dg.OpExecutionContext, config: ActiveConfig, state: StateFolder) -> None:
    """Make the read and store its receipt."""
    _probe_once(context, config, state.home(), Effect.CONSUMPTIVE)


def _probe_once(context: dg.OpExecutionContext, config: ActiveConfig, home: Home, effect: Effect) -> None:
    try:
        done = _checked_probe(config, home, effect)
    except TascError as error:
        raise failure_of(error) from None
    receipt = done.receipt
    context.log.info(f"{receipt.capability}: {receipt.state} ({receipt.reason}), receipt {receipt.digest}")
    _observe(context, home)
    if receipt.state != "supported":
        raise dg.Failure(
            f"not shown: {receipt.reason} -> see what it needs: tasc runtimes show {receipt.runtime.profile_id}",
            metadata={"receipt": receipt.digest, "state": receipt.state, "reason": receipt.reason},
            allow_retries=False,
        )


def _checked_probe(config: ActiveConfig, home: Home, effect: Effect) -> StoredProbe:
    """Check the config's words, then probe.

    Raises:
        NotAuthorized: the effect is not the job's; nothing was sent.
        InputError: a word is none of those that exist; nothing was sent.
    """
    if config.effect != effect.value:
        raise NotAuthorized(
            "the effect in the run's config is not the job's own",
            where=config.endpoint[:80],
            field="effect",
            rule=f"exactly {effect.value}",
            way_out="name it, or use the job of the other effect",
        )
    study, slash, alias = config.endpoint.partition("/")
    if not (study and slash and alias):
        raise InputError(
            "this names no endpoint", where=config.endpoint[:80], field="endpoint", way_out="write STUDY/ALIAS"
        )
    known = {item.value: item for item in Capability}
    if config.capability not in known:
        raise InputError(
            "there is no such capability",
            where=config.endpoint[:80],
            field="capability",
            way_out="choose one of " + ", ".join(sorted(known)),
        )
    if bool(config.authorization) != bool(config.request):
        raise InputError(
            "authorization and request are given together",
            where=config.endpoint[:80],
            field="authorization",
            way_out="leave both out where you name the effect yourself",
        )
    word = ProbeWord(config.authorization, config.request) if config.authorization else None
    options = ProbeOptions(effect, valid_hours=config.valid_hours, word=word)
    return probe_endpoint(home, study, alias, known[config.capability], options)


def _observe(context: dg.OpExecutionContext, home: Home) -> None:
    context.log_event(observation_of(endpoints_view(home, format_timestamp(utc_now()))))


@dg.job(tags=NO_RETRY, description="Passive observations of every endpoint of one study. Makes no server generate.")
def probe_endpoints() -> None:
    """One round."""
    probe_study_passively()


@dg.job(tags=NO_RETRY, description="One inference canary; config: endpoint, capability, effect = inference-canary.")
def probe_canary() -> None:
    """One canary."""
    send_canary()


@dg.job(tags=NO_RETRY, description="One consumptive read; config: endpoint, capability, effect = consumptive.")
def probe_consumptive() -> None:
    """One read."""
    read_consumptively()


check_endpoints = dg.define_asset_job(
    "check_endpoints",
    selection=dg.AssetSelection.checks_for_assets("runtime_endpoints"),
    description="Judge the newest receipts: expired, another build, drifted. Sends nothing.",
)
PROBE_JOBS = (probe_endpoints, probe_canary, probe_consumptive, check_endpoints)
