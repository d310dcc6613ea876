# SPDX-License-Identifier: Apache-2.0
"""The command line: simple_switch_grpc's options and a few of our own.

Options of the switch come before `--`, those of the target after it, as in BMv2. What BMv2 accepts
and softswitch has no use for is accepted too and named in a notice, so that scripts run unchanged;
what would change the switch's behaviour and is not done here is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

from softswitch.control.protocol import default_path
from softswitch.values import (
    MAX_QUEUE_DEPTH,
    MAX_QUEUE_RATE,
    DataplaneOptions,
    QueueSetting,
    TlsFiles,
)

DEFAULT_ADDRESS = "127.0.0.1:9559"
LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "off")
MAX_PORT = 0xFFFF
DEFAULT_DROP_PORT = 511
DEFAULT_QUEUE_DEPTH = 64
MAX_PRIORITY_QUEUES = 8
JSON_VERSION = "2.24"
"""The newest version of BMv2's JSON whose objects are known; BMv2 1.15.5 says the same."""

# Accepted because scripts give them: option, whether it takes a value, and what is different here.
_IGNORED = (
    ("--thrift-port", True, "softswitch has no Thrift server; use P4Runtime or softswitch-ctl"),
    ("--nanolog", True, "softswitch has no nanomsg event log"),
    ("--notifications-addr", True, "softswitch has no nanomsg; notifications go over P4Runtime"),
    ("--debugger", False, "softswitch has no nanomsg debugger"),
    ("--debugger-addr", True, "softswitch has no nanomsg debugger"),
    ("--max-port-count", True, "softswitch takes any number of interfaces"),
    ("--log-flush", False, "every log line is written at once"),
    ("--dump-packet-data", True, "--pcap writes all packets into files"),
)
# What a script that gives these counts on is not done here.
_REFUSED = (
    ("--use-files", True, "packets come from interfaces only (-i)"),
    ("--restore-state", True, "BMv2's state files are not read; a controller writes the entries"),
)
_IGNORED_TARGET = (
    ("--disable-swap", False, "P4Runtime can always replace the program"),
    ("--max-mc-groups", True, "multicast groups are not limited beyond their 16-bit ids"),
    ("--max-l1-entries", True, "multicast groups are not limited beyond their 16-bit ids"),
    ("--max-l2-entries", True, "multicast groups are not limited beyond their 16-bit ids"),
)
_REFUSED_TARGET = (
    ("--load-modules", True, "externs from shared objects cannot be loaded"),
    ("--dp-grpc-server-addr", True, "packets come from interfaces only (-i)"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """A parsed command line.

    `address` is where the server listens, with TLS when `tls` says so. `program` is the BMv2 JSON
    to start with; None waits for a controller (--no-p4). `control` is the socket of
    softswitch-ctl, None: there is none; one that was given must be free. `notices` are sentences
    about options that were given and have no effect, or a dangerous one. Log sizes in bytes, 0: no
    limit.
    """

    dataplane: DataplaneOptions
    address: str
    tls: TlsFiles | None
    program: Path | None
    log_file: Path | None
    log_console: bool
    log_level: str
    log_max_size: int
    log_max_files: int
    control: Path | None
    control_given: bool
    notices: tuple[str, ...]


class _Refuse(argparse.Action):
    """An option of BMv2 that cannot be had."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error(f"{self.option_strings[0]}: {self.help}")


class _Parser(argparse.ArgumentParser):
    """Ends with one line and code 1, as BMv2 does, instead of a page of usage and 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"softswitch: error: {message} (--help lists the options)\n")


def _interface(text: str) -> tuple[int, str]:
    port, at, name = text.partition("@")
    if not at or not name or not port.isdecimal() or int(port) > MAX_PORT:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not PORT@INTERFACE with a port in 0..{MAX_PORT}"
        )
    return int(port), name


def _queues(text: str) -> tuple[int | None, int | None]:
    """PORT or PORT.PRIORITY, empty for all."""
    if not text:
        return None, None
    port, dot, priority = text.partition(".")
    if not port.isdecimal() or int(port) > MAX_PORT or (dot and not priority.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not PORT or PORT.PRIORITY with a port in 0..{MAX_PORT}"
        )
    return int(port), int(priority) if dot else None


def _queue_depth(text: str) -> QueueSetting:
    queues, equals, depth = text.rpartition("=")
    if not depth.isdecimal() or not 1 <= int(depth) <= MAX_QUEUE_DEPTH or (equals and not queues):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not [PORT[.PRIORITY]=]PACKETS with 1..{MAX_QUEUE_DEPTH} packets"
        )
    return QueueSetting(*_queues(queues), depth=int(depth))


def _queue_rate(text: str) -> QueueSetting:
    queues, equals, rate = text.rpartition("=")
    if not rate.isdecimal() or int(rate) > MAX_QUEUE_RATE or (equals and not queues):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not [PORT[.PRIORITY]=]PPS, 0 (no limit) to {MAX_QUEUE_RATE}"
        )
    return QueueSetting(*_queues(queues), rate=int(rate))


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port in 0..{MAX_PORT}")
    return int(text)


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")
    return int(text)


def _switch_parser(version_text: str) -> _Parser:
    parser = _Parser(
        prog="softswitch",
        usage="softswitch [options] [--no-p4 | PROGRAM.json] [-- target options]",
        description="Runs p4c's BMv2 JSON as native code under a P4Runtime server.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-v", "--version", action="version", version=version_text)
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        default=[],
        type=_interface,
        metavar="PORT@INTERFACE",
        help="use this network interface as this port; may be repeated",
    )
    parser.add_argument(
        "--json-version", action="version", version=JSON_VERSION,
        help="print the newest version of BMv2's JSON that is known, and exit",
    )  # fmt: skip
    parser.add_argument("--device-id", type=_natural, default=0, metavar="N", help="default 0")
    parser.add_argument(
        "--control", metavar="PATH",
        help="socket for softswitch-ctl, 'none' for none; default "
        f"{default_path(0).parent}/device-N.sock",
    )  # fmt: skip
    parser.add_argument("--no-p4", action="store_true", help="start without a program")
    parser.add_argument(
        "--pcap",
        nargs="?",
        const=".",
        metavar="DIR",
        help="write pcap files of all interfaces into this directory (default: the current one)",
    )
    parser.add_argument("--log-console", action="store_true", help="log to standard output")
    parser.add_argument("--log-file", type=Path, metavar="FILE", help="log to this file")
    parser.add_argument(
        "-L", "--log-level", choices=LOG_LEVELS, default="info", metavar="LEVEL",
        help=f"one of {', '.join(LOG_LEVELS)}; default info",
    )  # fmt: skip
    parser.add_argument(
        "--log-file-max-size", type=_natural, default=0, metavar="BYTES",
        help="start a new log file at this size; default: never",
    )  # fmt: skip
    parser.add_argument(
        "--log-file-max-files", type=_natural, default=3, metavar="N",
        help="how many old log files to keep; default 3",
    )  # fmt: skip
    _add_ignored(parser, _IGNORED)
    _add_refused(parser, _REFUSED)
    parser.add_argument("program", nargs="?", type=Path, metavar="PROGRAM.json")
    return parser


def _target_parser() -> _Parser:
    parser = _Parser(
        prog="softswitch ... --",
        usage=argparse.SUPPRESS,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--grpc-server-addr", default=DEFAULT_ADDRESS, metavar="HOST:PORT",
        help=f"where P4Runtime listens; default {DEFAULT_ADDRESS} (BMv2: all addresses)",
    )  # fmt: skip
    parser.add_argument("--grpc-server-ssl", action="store_true", help="serve P4Runtime over TLS")
    for name, text in (
        ("cert", "PEM file of the server's certificate"),
        ("key", "PEM file of the server's private key"),
        ("cacert", "PEM file of the certificates that clients' ones are verified by"),
    ):
        parser.add_argument(f"--grpc-server-{name}", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--grpc-server-with-client-auth", action="store_true",
        help="only serve clients with a valid certificate",
    )  # fmt: skip
    parser.add_argument(
        "--cpu-port", type=_port, metavar="N",
        help="port of packet-in and packet-out; without it there is none",
    )  # fmt: skip
    parser.add_argument(
        "--drop-port", type=_port, default=DEFAULT_DROP_PORT, metavar="N",
        help=f"egress_spec that drops a packet; default {DEFAULT_DROP_PORT}",
    )  # fmt: skip
    parser.add_argument(
        "--priority-queues", type=_natural, default=1, metavar="N",
        help=f"queues per port, 1 to {MAX_PRIORITY_QUEUES}; default 1",
    )  # fmt: skip
    parser.add_argument(
        "--queue-depth", action="append", default=[], type=_queue_depth,
        metavar="[PORT[.PRIORITY]=]PACKETS",
        help=f"packets that an egress queue holds; default {DEFAULT_QUEUE_DEPTH}; of all "
        "ports, one port, or one of its queues",
    )  # fmt: skip
    parser.add_argument(
        "--queue-rate", action="append", default=[], type=_queue_rate,
        metavar="[PORT[.PRIORITY]=]PPS",
        help="packets per second that an egress queue sends at most; default 0: no limit",
    )  # fmt: skip
    _add_ignored(parser, _IGNORED_TARGET)
    _add_refused(parser, _REFUSED_TARGET)
    return parser


def _add_ignored(parser: _Parser, ignored: Sequence[tuple[str, bool, str]]) -> None:
    for name, takes_value, reason in ignored:
        text = f"accepted for BMv2's sake and ignored: {reason}"
        if takes_value:
            parser.add_argument(name, metavar="X", help=text)
        else:
            parser.add_argument(name, action="store_true", help=text)


def _add_refused(parser: _Parser, refused: Sequence[tuple[str, bool, str]]) -> None:
    for name, _, reason in refused:
        parser.add_argument(name, action=_Refuse, metavar="X", help=f"not supported: {reason}")


def _notices(namespace: argparse.Namespace, ignored: Sequence[tuple[str, bool, str]]) -> list[str]:
    return [
        f"{name} has no effect: {reason}"
        for name, _, reason in ignored
        if getattr(namespace, name.removeprefix("--").replace("-", "_"))
    ]


def _tls(target: argparse.Namespace, notices: list[str], parser: _Parser) -> TlsFiles | None:
    """What the TLS options ask for, with BMv2's rules; what has no effect goes into `notices`."""
    files = (target.grpc_server_cert, target.grpc_server_key, target.grpc_server_cacert)
    if not target.grpc_server_ssl:
        if any(files):
            notices.append("--grpc-server-cert, -key and -cacert have no effect without "
                           "--grpc-server-ssl")  # fmt: skip
        if target.grpc_server_with_client_auth:
            notices.append("--grpc-server-with-client-auth has no effect without --grpc-server-ssl")
        return None
    certificate, key, ca = files
    if certificate is None or key is None:
        parser.error("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if target.grpc_server_with_client_auth and ca is None:
        parser.error("--grpc-server-with-client-auth needs --grpc-server-cacert")
    return TlsFiles(certificate, key, ca, target.grpc_server_with_client_auth)


def _control(switch: argparse.Namespace) -> Path | None:
    if switch.control is None:
        return default_path(switch.device_id)
    return None if switch.control == "none" else Path(switch.control)


def _is_open(address: str) -> bool:
    """Whether machines other than this one may reach the address."""
    if address.startswith("unix"):
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host not in ("", "localhost")


def _version() -> str:
    try:
        return f"softswitch {version('mrc-fabric')}"
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "softswitch (not installed)"


def parse(arguments: Sequence[str]) -> Options:
    """Parse a command line (without the program's name).

    Exits with one line on standard error and code 1 when it is wrong, with 0 for --help.
    """
    switch_parser, target_parser = _switch_parser(_version()), _target_parser()
    arguments = list(arguments)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    target_arguments = arguments[split + 1 :]
    switch_parser.epilog = (
        "target options, after --:\n" + target_parser.format_help().partition("options:\n")[2]
    )
    switch, unknown = switch_parser.parse_known_args(arguments[:split])
    if unknown:
        hint = "" if "--" in arguments else "; the target's, --grpc-server-addr, come after --"
        switch_parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    target = target_parser.parse_args(target_arguments)

    if not switch.no_p4 and switch.program is None:
        switch_parser.error("give a BMv2 JSON or --no-p4")
    if switch.log_console and switch.log_file is not None:
        switch_parser.error("--log-console and --log-file exclude each other")
    if switch.pcap is not None and not Path(switch.pcap).is_dir():
        switch_parser.error(f"--pcap: there is no directory {switch.pcap!r}")
    if not 1 <= target.priority_queues <= MAX_PRIORITY_QUEUES:
        switch_parser.error(
            f"--priority-queues: {target.priority_queues} is not in 1..{MAX_PRIORITY_QUEUES}"
        )
    if target.cpu_port == 0:
        switch_parser.error("--cpu-port: 0 is not a valid CPU port")
    ports = dict(switch.interface)
    if len(ports) != len(switch.interface):
        switch_parser.error("-i: a port number is given twice")
    if len(set(ports.values())) != len(ports):
        switch_parser.error("-i: an interface is given twice")
    if target.cpu_port in ports:
        switch_parser.error(f"-i: port {target.cpu_port} is the CPU port")

    notices = [*_notices(switch, _IGNORED), *_notices(target, _IGNORED_TARGET)]
    tls = _tls(target, notices, switch_parser)
    address = target.grpc_server_addr
    if _is_open(address) and (tls is None or not tls.client_auth):
        notices.append(
            f"whoever reaches {address} can program this switch: for others than this machine use "
            "--grpc-server-ssl and --grpc-server-with-client-auth"
        )
    if switch.no_p4 and switch.program is not None:
        notices.append(f"{switch.program} is not loaded: --no-p4 was given")
    queues = (*target.queue_depth, *target.queue_rate)
    for setting in queues:
        if setting.priority is not None and setting.priority >= target.priority_queues:
            switch_parser.error(
                f"queue {setting.port}.{setting.priority}: with --priority-queues "
                f"{target.priority_queues} a port has priorities 0..{target.priority_queues - 1}"
            )
    return Options(
        dataplane=DataplaneOptions(
            device_id=switch.device_id,
            ports=ports,
            cpu_port=target.cpu_port,
            drop_port=target.drop_port,
            queue_depth=DEFAULT_QUEUE_DEPTH,
            queues=queues,
            priority_queues=target.priority_queues,
            pcap_dir=None if switch.pcap is None else Path(switch.pcap),
            log_messages=(switch.log_console or switch.log_file is not None)
            and switch.log_level in LOG_LEVELS[: LOG_LEVELS.index("info") + 1],
        ),
        address=address,
        tls=tls,
        program=None if switch.no_p4 else switch.program,
        log_file=switch.log_file,
        log_console=switch.log_console,
        log_level=switch.log_level,
        log_max_size=switch.log_file_max_size,
        log_max_files=switch.log_file_max_files,
        control=_control(switch),
        control_given=switch.control is not None,
        notices=tuple(notices),
    )
