# SPDX-License-Identifier: Apache-2.0
"""What a switch and `softswitch-ctl` say to each other over the control socket.

Both sides send one JSON object a line. A request is {"version": 1, "words": ["table_dump", "t"]},
its answer {"version": 1, "text": "...", "data": ...} or {"version": 1, "error": "..."}; requests
of one connection are answered in order. `text` is for people, `data` has the same for programs.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

VERSION = 1
MAX_LINE_BYTES = 1 << 20
"""Of a request."""


class ProtocolError(Exception):
    """A line that is not what this version of the protocol says."""


def run_time_dir() -> Path:
    """Where this user's switches have their control sockets; it need not exist.

    Root's is always the same, because sudo changes the environment.
    """
    if os.geteuid() == 0:
        return Path("/run/softswitch")
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given:
        return Path(given) / "softswitch"
    return Path(tempfile.gettempdir()) / f"softswitch-{os.geteuid()}"


def default_path(device_id: int) -> Path:
    """The control socket of a switch that was started without --control."""
    return run_time_dir() / f"device-{device_id}.sock"


def make_run_time_dir() -> None:
    """Make `run_time_dir` for its owner alone. Raises OSError, also for one of another user."""
    path = run_time_dir()
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a directory of this user")
    if status.st_mode & 0o077:
        path.chmod(0o700)


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"version": VERSION, **message}).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """A line as a message. Raises `ProtocolError`."""
    try:
        message = json.loads(line)
    except ValueError:
        raise ProtocolError("not a line of JSON") from None
    if not isinstance(message, dict):
        raise ProtocolError("not a JSON object")
    version = message.get("version")
    if version != VERSION:
        raise ProtocolError(f"version {version!r} of the protocol; this side has {VERSION}")
    return message


def words_of_request(message: dict[str, Any]) -> list[str]:
    """The command in a request. Raises `ProtocolError`."""
    words = message.get("words")
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise ProtocolError("a request needs words: a list of strings, the command first")
    return words
