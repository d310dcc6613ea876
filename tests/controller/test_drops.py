# SPDX-License-Identifier: Apache-2.0
"""The drop reasons are those of P4."""

from __future__ import annotations

import re
from pathlib import Path

from controller.drops import DropReason

SOURCE = Path(__file__).parents[2] / "p4src" / "include" / "drops.p4"


def test_same_names_and_numbers_as_in_p4() -> None:
    text = SOURCE.read_text()
    body = re.search(r"enum bit<8> drop_reason_t \{(.*?)\}", text, re.DOTALL)
    assert body is not None
    found = {name: int(value) for name, value in re.findall(r"(\w+)\s*=\s*(\d+)", body[1])}
    assert found == {reason.name: reason.value for reason in DropReason}
    size = re.search(r"DROP_REASONS = (\d+)", text)
    assert size is not None
    assert max(DropReason) < int(size[1])
