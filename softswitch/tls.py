# SPDX-License-Identifier: Apache-2.0
"""TLS of the P4Runtime server: the PEM files of simple_switch_grpc's options, read and checked.

gRPC takes any bytes for a certificate and says no more than that it cannot listen when they are
wrong, so the files are loaded into Python's own TLS first, which names the fault.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import grpc

from softswitch.values import TlsFiles


def server_credentials(files: TlsFiles) -> Any:
    """gRPC's credentials of a server. Raises OSError that names the file and what is wrong."""
    certificate, key = (_read(path) for path in (files.certificate, files.key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password given Python would ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except ssl.SSLError as error:
        raise OSError(
            f"{files.certificate} and {files.key} are not a PEM certificate and its unencrypted "
            f"key: {error.reason or error}"
        ) from None
    ca = None
    if files.ca is not None:
        ca = _read(files.ca)
        try:
            context.load_verify_locations(files.ca)
        except ssl.SSLError as error:
            raise OSError(f"{files.ca} holds no PEM certificate: {error.reason or error}") from None
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=ca, require_client_auth=files.client_auth
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from None
