# SPDX-License-Identifier: Apache-2.0
"""Tests that make interfaces and switches: in a private network namespace or not at all."""

from __future__ import annotations

import subprocess

import pytest

from ptf_tests.namespace import NamespaceError, require_private_namespace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PTF's switches stay for the rest of the session, on ports that fabrics need: they go last."""
    items.sort(key=lambda item: item.nodeid.startswith("ptf_tests/"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run in the machine's own namespace, before anything is made."""
    if session.config.option.collectonly:
        return
    try:
        require_private_namespace()
    except NamespaceError as error:
        raise pytest.UsageError(str(error)) from None
    subprocess.run(["ip", "link", "set", "dev", "lo", "up"], check=True)
