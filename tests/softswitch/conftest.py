# SPDX-License-Identifier: Apache-2.0
"""A switch with the program `entities`, once per module and kind of data plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from softswitch.boundary import DataplaneLike
from tests.softswitch.p4rt import DATAPLANES, RawClient, make_dataplane, primary


@pytest.fixture(scope="module", params=DATAPLANES)
def dataplane(request: pytest.FixtureRequest) -> Iterator[DataplaneLike]:
    """Each kind of data plane, without ports."""
    with make_dataplane(request.param) as dataplane:
        yield dataplane


@pytest.fixture(scope="module")
def switch(dataplane: DataplaneLike) -> Iterator[RawClient]:
    """The primary of a server over that data plane."""
    with primary(dataplane) as client:
        yield client


@pytest.fixture
def client(switch: RawClient) -> RawClient:
    """A client of a switch without entries."""
    switch.set_pipeline()
    return switch
