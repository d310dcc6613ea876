# SPDX-License-Identifier: Apache-2.0
"""The command line: BMv2's options, ours, and what is wrong with a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from softswitch.options import DEFAULT_ADDRESS, parse
from softswitch.values import DataplaneOptions, QueueSetting, TlsFiles

BMV2_OPTIONS = """
help interface pcap use-files thrift-port device-id nanolog log-console log-file log-level
log-flush log-file-max-size log-file-max-files restore-state dump-packet-data version
json-version no-p4 max-port-count load-modules disable-swap grpc-server-addr grpc-server-ssl
grpc-server-cacert grpc-server-cert grpc-server-key grpc-server-with-client-auth cpu-port
drop-port dp-grpc-server-addr priority-queues max-mc-groups max-l1-entries max-l2-entries
"""


def test_defaults() -> None:
    options = parse(["--no-p4"])
    assert options.dataplane == DataplaneOptions()
    assert options.address == DEFAULT_ADDRESS == "127.0.0.1:9559"
    assert (options.program, options.log_file, options.notices) == (None, None, ())


def test_everything(tmp_path: Path) -> None:
    options = parse(
        [
            *("-i", "1@veth0", "-i2@veth1", "--interface", "300@veth2", "--device-id", "7"),
            *("--log-file", "x.log", "--log-level=debug", "--pcap", str(tmp_path)),
            *("--log-file-max-size", "1000", "--log-file-max-files", "2", "prog.json", "--"),
            *("--grpc-server-addr", "[::1]:50051", "--cpu-port", "510", "--drop-port", "511"),
            *("--priority-queues", "8", "--queue-depth", "100", "--queue-depth", "2=10"),
            *("--queue-depth", "2.7=5", "--queue-rate", "1=500", "--queue-rate", "2.0=9"),
        ]
    )
    assert options.dataplane == DataplaneOptions(
        device_id=7,
        ports={1: "veth0", 2: "veth1", 300: "veth2"},
        cpu_port=510,
        drop_port=511,
        queues=(
            QueueSetting(depth=100),
            QueueSetting(2, depth=10),
            QueueSetting(2, 7, depth=5),
            QueueSetting(1, rate=500),
            QueueSetting(2, 0, rate=9),
        ),
        priority_queues=8,
        pcap_dir=tmp_path,
        log_messages=True,
    )
    assert options.address == "[::1]:50051"
    assert options.program == Path("prog.json")
    assert (options.log_file, options.log_level) == (Path("x.log"), "debug")
    assert (options.log_max_size, options.log_max_files) == (1000, 2)


def test_bmv2s_other_options_are_named() -> None:
    options = parse(
        [
            *("--no-p4", "--thrift-port", "9090", "--nanolog", "ipc:///tmp/x", "--log-flush"),
            *("--notifications-addr", "ipc:///tmp/y", "--max-port-count=64", "--debugger"),
            *("--", "--disable-swap", "--max-mc-groups", "4"),
        ]
    )
    assert len(options.notices) == 8
    assert "--thrift-port has no effect: softswitch has no Thrift server" in options.notices[0]


def test_tls() -> None:
    files = ["--grpc-server-cert", "c", "--grpc-server-key", "k", "--grpc-server-cacert", "a"]
    options = parse(["--no-p4", "--", "--grpc-server-ssl", *files])
    assert options.tls == TlsFiles(Path("c"), Path("k"), Path("a"), client_auth=False)
    options = parse(
        ["--no-p4", "--", "--grpc-server-ssl", "--grpc-server-with-client-auth", *files]
    )
    assert options.tls == TlsFiles(Path("c"), Path("k"), Path("a"), client_auth=True)
    # As over BMv2 the files alone switch nothing on.
    options = parse(["--no-p4", "--", "--grpc-server-with-client-auth", *files])
    assert options.tls is None
    assert [
        notice.partition(" have no")[0].partition(" has no")[0] for notice in options.notices
    ] == [
        "--grpc-server-cert, -key and -cacert",
        "--grpc-server-with-client-auth",
    ]


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("0.0.0.0:9559", True),
        ("[::]:9559", True),
        ("192.0.2.1:9559", True),
        ("switch.example:9559", True),
        ("127.0.0.2:9559", False),
        ("[::1]:9559", False),
        ("localhost:9559", False),
        ("unix:/tmp/socket", False),
    ],
)
def test_an_open_address_is_named(address: str, warned: bool) -> None:
    options = parse(["--no-p4", "--", "--grpc-server-addr", address])
    assert bool(options.notices) == warned
    tls = "--grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-cacert a"
    arguments = ["--no-p4", "--", "--grpc-server-addr", address, *tls.split()]
    assert bool(parse(arguments).notices) == warned
    assert not parse([*arguments, "--grpc-server-with-client-auth"]).notices


def test_every_option_of_bmv2_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that simple_switch_grpc 1.15.5 lists with --help."""
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    for option in BMV2_OPTIONS.split():
        assert f" --{option}" in text


def test_no_p4_wins_over_a_program_as_in_bmv2() -> None:
    options = parse(["--no-p4", "prog.json"])
    assert options.program is None
    assert "prog.json is not loaded" in options.notices[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "give a BMv2 JSON or --no-p4"),
        ("--no-p4 -i veth0", "'veth0' is not PORT@INTERFACE"),
        ("--no-p4 -i x@veth0", "'x@veth0' is not PORT@INTERFACE"),
        ("--no-p4 -i 1@", "'1@' is not PORT@INTERFACE"),
        ("--no-p4 -i 70000@veth0", "with a port in 0..65535"),
        ("--no-p4 -i 1@a -i 1@b", "a port number is given twice"),
        ("--no-p4 -i 1@a -i 2@a", "an interface is given twice"),
        ("--no-p4 --device-id x", "--device-id: 'x' is not a number"),
        ("--no-p4 --log-level loud", "'loud' (choose from"),
        ("--no-p4 --log-console --log-file x", "exclude each other"),
        ("--no-p4 --pcap /nowhere/at/all", "there is no directory '/nowhere/at/all'"),
        ("--no-p4 --use-files 1", "--use-files: not supported: packets come from interfaces"),
        ("--no-p4 --restore-state x", "--restore-state: not supported: BMv2's state files"),
        ("--no-p4 -- --load-modules x.so", "--load-modules: not supported: externs from shared"),
        ("--no-p4 -- --dp-grpc-server-addr x", "--dp-grpc-server-addr: not supported: packets"),
        ("--no-p4 -- --cpu-port 0", "0 is not a valid CPU port"),
        ("--no-p4 -i 5@a -- --cpu-port 5", "port 5 is the CPU port"),
        ("--no-p4 -- --priority-queues 9", "9 is not in 1..8"),
        ("--no-p4 -- --queue-rate 1.1=5", "queue 1.1: with --priority-queues 1"),
        ("--no-p4 -- --queue-depth 1=0", "'1=0' is not [PORT[.PRIORITY]=]PACKETS"),
        ("--no-p4 -- --queue-rate x=5", "'x' is not PORT or PORT.PRIORITY"),
        ("--no-p4 -- --queue-depth 0", "'0' is not [PORT[.PRIORITY]=]PACKETS with"),
        ("--no-p4 -- --queue-depth x=3", "'x' is not PORT or PORT.PRIORITY"),
        ("--no-p4 -- --queue-rate 5k", "'5k' is not [PORT[.PRIORITY]=]PPS, 0"),
        ("--no-p4 -- --grpc-server-ssl", "needs --grpc-server-cert and --grpc-server-key"),
        ("--no-p4 -- --grpc-server-ssl --grpc-server-cert c", "needs --grpc-server-cert and"),
        (
            "--no-p4 -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k "
            "--grpc-server-with-client-auth",
            "--grpc-server-with-client-auth needs --grpc-server-cacert",
        ),
        ("--no-p4 --cpu-port 5", "unrecognized arguments: --cpu-port"),
    ],
)
def test_wrong_command_lines(
    capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments.split())
    assert caught.value.code == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("softswitch: error: ")
    assert message in output.err
    assert output.err.count("\n") == 1


def test_help_shows_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for option in ("--device-id", "--thrift-port", "--grpc-server-addr", "--queue-rate"):
        assert option in text
