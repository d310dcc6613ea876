# SPDX-License-Identifier: Apache-2.0
"""What has left each port against what a test expects there.

As with BMv2: packets are compared port by port, in order; all that leaves a port which the test
mentions has to be expected; ports that it does not mention are not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from softswitch.stf.commands import Expect


class Outputs:
    """Packets and expectations by port."""

    def __init__(self, ports: Collection[int]) -> None:
        """`ports` are those that the test mentions."""
        self._ports = sorted(ports)
        self._left: dict[int, list[bytes]] = defaultdict(list)
        self._expected: dict[int, list[Expect]] = defaultdict(list)

    def left(self, port: int, data: bytes) -> None:
        """A packet has left."""
        self._left[port].append(data)

    def expect(self, command: Expect) -> None:
        """A packet is to leave, or has left already."""
        self._expected[command.port].append(command)

    def surplus(self) -> dict[int, int]:
        """How many more packets than expected so far have left each port, where there are more."""
        more = {port: len(self._left[port]) - len(self._expected[port]) for port in self._ports}
        return {port: count for port, count in more.items() if count > 0}

    @property
    def received(self) -> int:
        """Packets that have left the ports which the test mentions."""
        return sum(len(self._left[port]) for port in self._ports)

    def differences(self) -> Iterator[str]:
        """One text for each packet that is missing, too much, or other than expected."""
        for port in self._ports:
            expected, left = self._expected[port], self._left[port]
            for number, (command, data) in enumerate(zip(expected, left, strict=False)):
                if difference := compare(command, data):
                    yield (f"line {command.line}: packet {number + 1} of port {port}: {difference}")
            for command in expected[len(left) :]:
                yield (
                    f"line {command.line}: port {port}: nothing left; expected "
                    f"{command.pattern or 'any packet'}"
                )
            for data in left[len(expected) :]:
                yield f"port {port}: not expected: {data.hex()}"


def compare(command: Expect, data: bytes) -> str:
    """How a packet differs from what is expected; "" when it does not."""
    if command.pattern is None:
        return ""
    pattern, got = command.pattern, data.hex()
    wrong = [
        at
        for at, digit in enumerate(pattern)
        if digit != "*" and (at >= len(got) or digit != got[at])
    ]
    short = len(got) < len(pattern)
    long = command.exact and len(got) > len(pattern)
    if not wrong and not short and not long:
        return ""
    if short or long:
        wanted = -(-len(pattern) // 2)
        what = f"{len(data)} bytes instead of {wanted}{'' if command.exact else ' or more'}"
    else:
        places = sorted({at // 2 for at in wrong})
        what = f"byte{'s' if len(places) > 1 else ''} {', '.join(map(str, places))} differ"
        what += "s" if len(places) == 1 else ""
    marks = "".join("^" if at in set(wrong) else " " for at in range(len(pattern))).rstrip()
    end = "$" if command.exact else ""
    lines = [what, f"  expected {pattern}{end}", f"  got      {got}"]
    return "\n".join([*lines, f"           {marks}"] if marks else lines)
