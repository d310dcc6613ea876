# SPDX-License-Identifier: Apache-2.0
"""A host agent's control socket whose probes go where a test says: no packet is sent."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrc.messages import PathResult, ProbeRequest, ProbeResult, ProbeTarget

RTT_NS = 1_000_000


@dataclass(eq=False)
class FakeAgent:
    """One host. `lose` says how many of a way's probes get no answer, by target and path EV."""

    lose: Callable[[ProbeTarget, int | None], int] = lambda target, path_ev: 0
    unsent: int = 0  # probes of each way that do not leave the host
    refuse: str = ""
    requests: list[ProbeRequest] = field(default_factory=list)

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        assert command.pop("command") == "probe"
        if self.refuse:
            return {"ok": False, "error": self.refuse}
        request = ProbeRequest.from_json(command)
        self.requests.append(request)
        paths = []
        for number, target in enumerate(request.targets):
            path_evs: Sequence[int | None] = target.path_evs or [None]
            paths += [self._path(request, number, target, path_ev) for path_ev in path_evs]
        return {"ok": True, "result": ProbeResult(1, paths).to_json()}

    def _path(
        self, request: ProbeRequest, number: int, target: ProbeTarget, path_ev: int | None
    ) -> PathResult:
        received = request.count - self.unsent - self.lose(target, path_ev)
        return PathResult(
            target=number,
            path_ev=path_ev,
            carrier=target.carrier,
            sent=request.count,
            received=received,
            late=0,
            duplicates=0,
            send_errors=self.unsent,
            rtt_ns=[RTT_NS] * received,
        )


@contextmanager
def serve_agent(agent: FakeAgent, path: Path) -> Iterator[None]:
    """Listen on the unix socket `path`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(json.dumps(agent.answer(json.loads(line))).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
