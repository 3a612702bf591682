"""Which class reads a record: the table from schema id to record class.

The id stands in the field ``version`` or ``schemaVersion``. One id has two shapes, told apart by ``status``. A class
that is not listed here cannot be read by ``tasc validate``; a test compares the list with the classes that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from tasc_collector.contracts.base import Record
from tasc_collector.contracts.build_profile import BuildProfile
from tasc_collector.contracts.case_set import CaseSetFile
from tasc_collector.contracts.cli_files import RuntimeEndpointFile, ShadowIdentityFile, ShadowProfilesFile
from tasc_collector.contracts.collection import (
    AuthorizationRevocation,
    CollectionPlan,
    PlanApproval,
    StandingAuthorization,
)
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.controller import ControllerAnchor, ControllerEvent, ControllerSnapshot
from tasc_collector.contracts.decision import AssessmentDecision
from tasc_collector.contracts.decision_answers import DecisionAnswers
from tasc_collector.contracts.descriptor import EndpointDescriptor
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_batch import EvidenceBatch
from tasc_collector.contracts.fault import CollectorFault
from tasc_collector.contracts.manifest import WindowManifest
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.notices import NoticePost, NoticeRules
from tasc_collector.contracts.observations import DeviceSnapshotRecord, MetricsScrape, MetricsScrapeBatch
from tasc_collector.contracts.operations import AnalysisPlan, CostModel, KeyRing, Notice
from tasc_collector.contracts.part_manifest import CompactedManifest, PartManifest
from tasc_collector.contracts.persistence import RuntimeInvocationPersistence
from tasc_collector.contracts.policy import PolicyBundle
from tasc_collector.contracts.probe import CapabilityProbeEvidence
from tasc_collector.contracts.proposal import ExperimentBudget, ExperimentHistory, HeldExperiment, ProposedExperiment
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.contracts.report import AssessmentReport
from tasc_collector.contracts.shadow_plan import ShadowRunPlan
from tasc_collector.contracts.study import EndpointFile, Study, StudyFork
from tasc_collector.contracts.timeline import TraceTimeline
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.contracts.window import WindowDeclaration, WindowLink
from tasc_collector.errors import InputError

RECORD_CLASSES: Final[tuple[type[Record], ...]] = (
    # the original project's
    AssessmentContext,
    AssessmentDecision,
    CapabilityProbeEvidence,
    CollectorTrustPolicy,
    ControllerEvent,
    ControllerSnapshot,
    EndpointDescriptor,
    EvaluatorEvidence,
    EvaluatorTrustSnapshot,
    ExperimentBudget,
    ExperimentHistory,
    ExperimentProtocol,
    HeldExperiment,
    PolicyBundle,
    ProposedExperiment,
    RuntimeEndpointFile,
    RuntimeInvocationPersistence,
    ShadowIdentityFile,
    ShadowProfilesFile,
    ShadowRunPlan,
    TraceEnvelope,
    WindowManifest,
    # ours
    AnalysisPlan,
    AssessmentReport,
    AuthorizationRevocation,
    BuildProfile,
    CapabilityReceipt,
    CaseSetFile,
    CollectionPlan,
    CollectorFault,
    CompactedManifest,
    Comparison,
    ControllerAnchor,
    CostModel,
    DecisionAnswers,
    DeviceSnapshotRecord,
    EndpointFile,
    EvidenceBatch,
    KeyRing,
    MetricsScrape,
    MetricsScrapeBatch,
    NetworkExtension,
    Notice,
    NoticePost,
    NoticeRules,
    PartManifest,
    PlanApproval,
    StandingAuthorization,
    Study,
    StudyFork,
    TraceTimeline,
    WindowDeclaration,
    WindowLink,
)

_ID_FIELDS: Final = ("version", "schemaVersion")


def _literal(cls: type[Record], name: str) -> str | None:
    """The one word that a field of a class may hold, if it is such a field."""
    field = next((item for key, item in cls.model_fields.items() if name in (key, item.alias)), None)
    words = get_args(field.annotation) if field is not None else ()
    return words[0] if len(words) == 1 and isinstance(words[0], str) else None


def schema_id(cls: type[Record]) -> str | None:
    """The schema id of a record class, or None where it has none, as ``HttpLimits``, which stands inside others."""
    return next((word for name in _ID_FIELDS if (word := _literal(cls, name)) is not None), None)


def _table() -> Iterator[tuple[tuple[str, str | None], type[Record]]]:
    for cls in RECORD_CLASSES:
        identifier = schema_id(cls)
        if identifier is not None:
            yield (identifier, _literal(cls, "status")), cls


CATALOGUE: Final[Mapping[tuple[str, str | None], type[Record]]] = dict(_table())
"""Record class by schema id and, where the class fixes one, ``status``."""


def record_class(value: Mapping[str, Any], *, where: str | None = None) -> type[Record]:  # Any: a JSON object
    """The class that reads a JSON value.

    Raises:
        InputError: it names no schema id, or one that is not known here.
    """
    identifier = next((value[name] for name in _ID_FIELDS if isinstance(value.get(name), str)), None)
    if identifier is None:
        raise InputError(
            "the record does not say what it is",
            where=where,
            field="version",
            rule="version or schemaVersion holds the schema id",
            way_out="add it",
        )
    status = value.get("status")
    shapes = ((identifier, status), (identifier, None)) if isinstance(status, str) else ((identifier, None),)
    found = next((CATALOGUE[shape] for shape in shapes if shape in CATALOGUE), None)
    if found is None:
        raise InputError(
            "unknown schema id",
            where=where,
            field="version",
            rule="one of the ids of this build",
            way_out="correct the id, or read the record with the build that wrote it",
        )
    return found
