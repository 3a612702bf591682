"""A study's endpoint as probes, samplers and calls see it: authority, identity, profile."""

from __future__ import annotations

from tasc_collector.contracts.instance import RuntimeInstance
from tasc_collector.contracts.study import EndpointFile
from tasc_collector.invocation.prepare import Authentication
from tasc_collector.probes.observations import Subject
from tasc_collector.probes.reading import ReadTarget
from tasc_collector.secrets import process_secrets
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy
from tasc_pipeline.steps.admission import endpoint_profile


def subject_of(home: Home, loaded: LoadedStudy, profile_id: str) -> Subject:
    """The server of a profile, as probes and samplers see it."""
    endpoint = loaded.endpoints[profile_id]
    binding = loaded.bindings[profile_id]
    return Subject(
        ReadTarget(
            loaded.policy.record,
            endpoint.alias,
            endpoint.runtime.profile_id,
            endpoint.runtime.build,
            None if loaded.extension is None else loaded.extension.record,
            authentication_of(endpoint),
            process_secrets(home.keys),
        ),
        RuntimeInstance(
            endpoint_descriptor_digest=binding,
            runtime=endpoint.runtime,
            backend=endpoint.backend,
            model=endpoint.model,
            configuration_digest=endpoint.configuration_digest,
        ),
        endpoint_profile(home, endpoint),
        loaded.descriptor_digest(profile_id),
    )


def authentication_of(endpoint: EndpointFile) -> Authentication | None:
    """How calls to an endpoint authenticate."""
    if endpoint.authentication_reference is None or endpoint.authentication_secret is None:
        return None
    return Authentication(
        endpoint.authentication_reference,
        endpoint.authentication_header or "authorization",
        endpoint.authentication_secret,
    )
