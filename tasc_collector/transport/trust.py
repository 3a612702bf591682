"""How an endpoint's certificate is trusted: from the operator's network extension to TLS settings."""

from __future__ import annotations

from pathlib import Path

from tasc_collector.secrets import certificate_file
from tasc_collector.transport.policy import AuthorizedRequest
from tasc_collector.transport.tls import TlsSettings, read_ca_file


def trust_of(authorized: AuthorizedRequest, *, key_folder: Path | None) -> TlsSettings:
    """TLS settings of an authorized request; the public CA set where the operator's extension says nothing else.

    Args:
        authorized: the request's authority.
        key_folder: where a client certificate lies; None where there is no key folder.

    Raises:
        InputError: the CA file is not the pinned one.
        SecretUnavailable: the client certificate cannot be used.
    """
    opened = authorized.extension
    if opened is None:
        return TlsSettings()
    certificate = None
    if opened.client_certificate is not None:
        certificate = certificate_file(opened.client_certificate, key_folder=key_folder)
    networks = opened.private_networks
    if networks is None:
        return TlsSettings(client_certificate=certificate)
    ca_pem = None if networks.ca_file is None else read_ca_file(Path(networks.ca_file.path), networks.ca_file.digest)
    return TlsSettings(ca_pem, networks.spki_pin, certificate)
