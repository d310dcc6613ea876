# SPDX-License-Identifier: Apache-2.0
"""Any command line is either understood or refused with a message: no other end."""

from __future__ import annotations

import contextlib
import io

from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch.options import Options, parse

NAMES = (
    *("-i", "--interface", "--device-id", "--pcap", "--no-p4", "--log-file", "--log-level"),
    *("--thrift-port", "--cpu-port", "--drop-port", "--grpc-server-addr", "--priority-queues"),
    *("--queue-depth", "--queue-rate", "--grpc-server-ssl", "--grpc-server-cert", "--", "-v"),
    *(
        "--grpc-server-with-client-auth",
        "--log-file-max-size",
        "--max-port-count",
        "--disable-swap",
    ),
)
VALUES = (
    *(
        "",
        "0",
        "1",
        "-1",
        "65536",
        "999999999999999999999",
        "0x10",
        "1.5",
        "1@",
        "@veth0",
        "1@veth0",
    ),
    *(
        "1@2@3",
        "1@veth0",
        "1=2",
        "1.8=3",
        "2.7=5",
        "=",
        "1=",
        "a=b",
        "127.0.0.1:0",
        "[::1]:1",
        ":9559",
    ),
    *("::", "[", "]:1", "a" * 300, "prog.json", "/dev/null", "\N{ARABIC-INDIC DIGIT ONE}", "\0"),
)
WORDS = st.sampled_from(NAMES) | st.sampled_from(VALUES) | st.text(max_size=12)


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(st.lists(WORDS, max_size=8))
def test_any_words(arguments: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert isinstance(parse(arguments), Options)
    except SystemExit as end:
        assert end.code in (0, 1)
        assert out.getvalue() if end.code == 0 else err.getvalue()
