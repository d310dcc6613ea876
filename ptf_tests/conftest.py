# SPDX-License-Identifier: Apache-2.0
"""PTF under pytest: one switch of each program for the session, clean tables for every test.

``pytest ptf_tests --target softswitch|bmv2``, in a network namespace of its own (``make ptf``).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator, Iterator
from pathlib import Path

import ptf
import pytest
from ptf import ptfutils

from controller.p4rt import DeviceError
from ptf_tests.namespace import NamespaceError, VethPairs, require_private_namespace
from ptf_tests.switch import TARGETS, SwitchError, SwitchProcess

# PTF reads its configuration when its modules are imported.
ptf.config.update(
    platform="local",
    relax=False,
    port_map={},
    # Scapy's own layers that PTF would load: mrc.scapy_layers dissects UDP port 4791, the others
    # are not used here.
    disable_rocev2=True,
    disable_igmp=True,
    qlen=10_000,  # packets kept per port until a test takes them
    socket_recv_size=16_384,
)
ptfutils.default_timeout = 3.0
ptfutils.default_negative_timeout = 0.1

pytest.register_assert_rewrite("ptf_tests.bench", "ptf_tests.device", "ptf_tests.ev_sender")

from ptf.dataplane import DataPlane  # noqa: E402

from ptf_tests import nic_world, world  # noqa: E402
from ptf_tests.bench import Bench  # noqa: E402
from ptf_tests.device import Device  # noqa: E402
from ptf_tests.ev_sender import OTHER_PLANE, PATHS, Sender  # noqa: E402
from ptf_tests.queues import QueueControl, Queued, queue_control  # noqa: E402

# Program -> its P4Runtime device id (and PTF device number) and its ports.
SWITCHES = {"fabric": (1, world.PORTS), "nic": (2, nic_world.PORTS)}
SO_RCVBUFFORCE = 33  # Linux; the socket module has no name for it
RECEIVE_BUFFER_BYTES = 32 << 20
PRIORITY_QUEUES = 2

_processes: dict[str, SwitchProcess] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", choices=TARGETS, default="softswitch", help="switch to test")


def pytest_collection_finish(session: pytest.Session) -> None:
    here = Path(__file__).parent
    if session.config.option.collectonly or not any(here in i.path.parents for i in session.items):
        return
    try:
        require_private_namespace()
    except NamespaceError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, None]:
    """Show the end of the switches' logs with every failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for program, process in _processes.items():
            report.sections.append((f"{program} switch's log", process.log_tail()))


@pytest.fixture(scope="session")
def _benches(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Bench]]:
    target = pytestconfig.getoption("--target")
    logs = tmp_path_factory.mktemp("switches")
    with contextlib.ExitStack() as stack:
        ends = [
            (f"{name}-eth{n}", f"ptf-{name}{n}") for name, (_, p) in SWITCHES.items() for n in p
        ]
        stack.enter_context(VethPairs(ends))
        dataplane = DataPlane(ptf.config)
        stack.callback(dataplane.kill)
        for program, (device_id, ports) in SWITCHES.items():
            for port in ports:
                dataplane.port_add(f"ptf-{program}{port}", device_id, port)
                dataplane.ports[device_id, port].socket.setsockopt(
                    socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES
                )
            interfaces = {port: f"{program}-eth{port}" for port in ports}
            process = SwitchProcess(
                target,
                device_id,
                interfaces,
                logs / f"{program}.log",
                priority_queues=PRIORITY_QUEUES,
                control=logs / f"{program}.sock",
            )
            process.start()
            stack.callback(process.stop)
            _processes[program] = process
        benches = {}
        for program, (device_id, ports) in SWITCHES.items():
            process = _processes[program]
            try:
                device = Device(program, process.address, device_id)
            except DeviceError as error:
                process.check()
                raise SwitchError(f"{program}: {error}\n{process.log_tail()}") from None
            stack.callback(device.close)
            benches[program] = Bench(device, dataplane, device_id, ports)
        yield benches


def _clean_bench(bench: Bench) -> Iterator[Bench]:
    bench.dataplane.flush()
    yield bench
    bench.device.clean()


@pytest.fixture
def fabric(_benches: dict[str, Bench]) -> Iterator[Bench]:
    """The switch that runs fabric.p4, with empty tables."""
    yield from _clean_bench(_benches["fabric"])


@pytest.fixture(scope="session")
def _queue_control(
    pytestconfig: pytest.Config, _benches: dict[str, Bench]
) -> Iterator[QueueControl]:
    process = _processes["fabric"]
    control = queue_control(pytestconfig.getoption("--target"), process)
    yield control
    control.close()


@pytest.fixture(scope="session")
def _nic_queue_control(
    pytestconfig: pytest.Config, _benches: dict[str, Bench]
) -> Iterator[QueueControl]:
    control = queue_control(pytestconfig.getoption("--target"), _processes["nic"])
    yield control
    control.close()


@pytest.fixture
def queued(t0: Bench, _queue_control: QueueControl) -> Iterator[Queued]:
    """The T0 with queues: traffic classes, one port to a switch and one to a host."""
    t0.device.insert(*world.queue_entries())
    _queue_control.reset()
    yield Queued(t0, _queue_control)
    _queue_control.reset()


@pytest.fixture
def nic(_benches: dict[str, Bench]) -> Iterator[Bench]:
    """The switch that runs nic.p4, with empty tables and no plane down."""
    bench = _benches["nic"]
    yield from _clean_bench(bench)
    nic_world.set_down_planes(bench.device, 0)


@pytest.fixture
def t0(fabric: Bench) -> Bench:
    """fabric.p4 with the static tables of a T0."""
    fabric.device.insert(*world.t0_entries())
    return fabric


@pytest.fixture
def t1(fabric: Bench) -> Bench:
    """fabric.p4 with the static tables of a T1."""
    fabric.device.insert(*world.t1_entries())
    return fabric


@pytest.fixture
def host_nic(nic: Bench) -> Bench:
    """nic.p4 with the tables of a host's NIC, but no spray groups."""
    nic.device.insert(*nic_world.nic_entries())
    return nic


@pytest.fixture
def queued_nic(host_nic: Bench, _nic_queue_control: QueueControl) -> Queued:
    """The same with a way to slow its queues down; who does so makes them fast again."""
    return Queued(host_nic, _nic_queue_control)


@pytest.fixture(scope="session")
def ev_events(_benches: dict[str, Bench]) -> None:
    """The NIC sends digests of changes of EV states, whoever asks for them later."""
    _benches["nic"].device.subscribe("ev_event_t")


@pytest.fixture(scope="session")
def _spray_groups() -> Iterator[int]:
    return iter(range(100, 1024))


@pytest.fixture
def spray_group(_spray_groups: Iterator[int]) -> int:
    """A group that no test has used: the round robin's registers still start at 0."""
    return next(_spray_groups)


@pytest.fixture
def second_spray_group(_spray_groups: Iterator[int]) -> int:
    """Another one."""
    return next(_spray_groups)


@pytest.fixture
def sender(host_nic: Bench, spray_group: int, ev_events: None) -> Sender:
    """A sender without a spray group."""
    while host_nic.device.digests(0.1):
        pass
    return Sender(host_nic, spray_group)


@pytest.fixture
def one_plane(sender: Sender) -> Sender:
    """Six paths in one plane, of which one stays active."""
    sender.install({0: PATHS})
    return sender


@pytest.fixture
def two_planes(sender: Sender) -> Sender:
    """Six paths in each of two planes, of which one each stays active."""
    sender.install({0: PATHS, 1: OTHER_PLANE})
    return sender
