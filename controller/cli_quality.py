# SPDX-License-Identifier: Apache-2.0
"""``mrcctl probe`` and ``heatmap``: measure paths and links, and draw what was measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from controller.cli_common import (
    CommandError,
    PolicyOption,
    RunDirOption,
    Session,
    TopoOption,
    console,
    errors,
    plain_table,
    rich_escape,
)
from controller.fabric import Fabric
from controller.heatmap import HeatMap, format_loss, format_rtt, pair_heatmap, plane_heatmap
from controller.heatmap_figure import save_figure
from controller.heatmap_terminal import print_heatmap
from controller.probing import (
    DEFAULT_COUNT,
    DEFAULT_TIMEOUT_S,
    Probe,
    ProbeReport,
    Selection,
    choose,
    run_probes,
)
from controller.quality import Thresholds
from controller.samples import ProbeKind, Samples, load_samples, save_samples

SAMPLES_FILE = "samples.npz"
WORST_SHOWN = 20
KIND_NAMES = {
    ProbeKind.T0_SELF: "NIC-T0 links",
    ProbeKind.T1_SELF: "T0-T1 links",
    ProbeKind.PATH: "paths",
}

CountOption = Annotated[int, typer.Option("--count", help="Probes on each way.", min=1)]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        help="Probes per second of all hosts together (default: what the target carries).",
        min=1.0,
    ),
]
WaitOption = Annotated[
    float,
    typer.Option("--timeout", help="Seconds until a probe counts as lost.", min=0.001, max=60),
]


# ---- probe --------------------------------------------------------------------------------------


def probe(
    source: Annotated[
        list[str] | None, typer.Option("--from", help="Only from this host (repeatable).")
    ] = None,
    destination: Annotated[
        list[str] | None, typer.Option("--to", help="Only to this host (repeatable).")
    ] = None,
    plane: Annotated[
        list[int] | None, typer.Option("--plane", help="Only this plane (repeatable).")
    ] = None,
    uplink: Annotated[
        list[int] | None, typer.Option("--uplink", help="Only this uplink (repeatable).")
    ] = None,
    paths: Annotated[
        bool, typer.Option("--paths/--no-paths", help="Probe paths between hosts.")
    ] = True,
    links: Annotated[
        bool, typer.Option("--links/--no-links", help="Probe links by self-probes.")
    ] = True,
    count: CountOption = DEFAULT_COUNT,
    rate: RateOption = None,
    timeout: WaitOption = DEFAULT_TIMEOUT_S,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Samples file, .json or .npz (default: run directory)."
        ),
    ] = None,
    run_dir: RunDirOption = None,
) -> None:
    """Measure loss and round trip of paths (every EV) and links (self-probes); keep the samples."""
    session = Session.of(run_dir)
    selection = Selection(source, destination, plane, uplink, paths, links)
    samples = measure(session, selection, count=count, rate=rate, timeout_s=timeout, output=output)
    print_samples(samples, session.fabric)


def measure(
    session: Session,
    selection: Selection,
    *,
    count: int = DEFAULT_COUNT,
    rate: float | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    output: Path | None = None,
) -> Samples:
    """Probe with progress, save the samples, return them. CommandError when an agent failed."""
    chosen = choose(session.fabric, selection)
    if not chosen:
        raise CommandError("nothing to probe: the options leave no path and no link")
    if selection.paths and session.overlay.policy.spray.mode == "ecmp":
        raise CommandError(
            "the policy hashes flows (spray mode ecmp), so that no EV names a path to probe; "
            "--no-paths probes the links"
        )
    report = _probe_with_progress(session, chosen, count, rate, timeout_s)
    if len(report.samples):
        save_samples(report.samples, output or session.run_dir / SAMPLES_FILE)
    if report.unsent:
        errors.print(
            f"{report.unsent} probes could not be sent by their hosts: not counted as lost"
        )
    for name, message in report.errors.items():
        errors.print(f"[bold red]{name}[/]: {rich_escape(message)}")
    if report.errors:
        raise CommandError(f"no or not all probes from {', '.join(report.errors)}")
    return report.samples


def _probe_with_progress(
    session: Session, chosen: list[Probe], count: int, rate: float | None, timeout_s: float
) -> ProbeReport:
    bar = Bar(
        TextColumn("probe"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        task = bar.add_task("probe", total=count * len(chosen))
        return asyncio.run(
            run_probes(
                session.inventory,
                session.fabric,
                chosen,
                count=count,
                total_rate=rate,
                timeout_s=timeout_s,
                on_progress=lambda done: bar.advance(task, done),
            )
        )


def print_samples(samples: Samples, fabric: Fabric) -> None:
    """Loss and round trip by kind of probe, and the ways that lost most."""
    numbers = ("Probes", "Lost", "Loss", "RTT median", "RTT p99")
    table = plain_table("Of", *numbers, right=numbers)
    for kind in ProbeKind:
        rtt = samples.rtt_s[samples.kind == kind]
        if not len(rtt):
            continue
        answered = rtt[~np.isnan(rtt)]
        lost = len(rtt) - len(answered)
        table.add_row(
            KIND_NAMES[kind],
            str(len(rtt)),
            str(lost),
            format_loss(lost / len(rtt)),
            *(
                format_rtt(float(np.quantile(answered, q))) if len(answered) else "-"
                for q in (0.5, 0.99)
            ),
        )
    console.print(table)
    print_lossy(samples, fabric)


def print_lossy(samples: Samples, fabric: Fabric) -> None:
    """The ways on which probes were lost, the worst first."""
    columns = np.stack(
        [samples.kind, samples.src, samples.dst, samples.plane, samples.uplink], axis=1
    )
    ways, of_way = np.unique(columns.astype(np.int64), axis=0, return_inverse=True)
    sent = np.bincount(of_way.ravel(), minlength=len(ways))
    lost = np.bincount(of_way.ravel()[np.isnan(samples.rtt_s)], minlength=len(ways))
    worst = np.argsort(-lost / sent, kind="stable")
    lossy = [way for way in worst.tolist() if lost[way]]
    if not lossy:
        console.print("no probe was lost")
        return
    table = plain_table("Lossy", "Lost", right=("Lost",))
    for way in lossy[:WORST_SHOWN]:
        table.add_row(_way_words(fabric, *ways[way].tolist()), f"{lost[way]} of {sent[way]}")
    console.print(table)
    if len(lossy) > WORST_SHOWN:
        console.print(f"and {len(lossy) - WORST_SHOWN} more")


def _way_words(fabric: Fabric, kind: int, src: int, dst: int, plane: int, uplink: int) -> str:
    first_host = fabric.p4_device_count
    source = fabric.device_at(first_host + src)
    assert source.group is not None
    t0 = fabric.device_at(fabric.t0_row(plane, source.group)).name
    t1 = fabric.device_at(fabric.t1_row(plane, uplink)).name
    if kind == ProbeKind.T0_SELF:
        return f"{source.name} - {t0} and back"
    if kind == ProbeKind.T1_SELF:
        return f"{source.name} - {t0} - {t1} and back"
    destination = fabric.device_at(first_host + dst)
    assert destination.group is not None
    if destination.group == source.group:
        return f"{source.name} - {t0} - {destination.name}"
    other = fabric.device_at(fabric.t0_row(plane, destination.group)).name
    return f"{source.name} - {t0} - {t1} - {other} - {destination.name}"


# ---- heatmap ------------------------------------------------------------------------------------


def heatmap(
    pair: Annotated[
        tuple[int, int] | None,
        typer.Option("--pair", help="Plane x T1 of the paths from T0 group A to B.", metavar="A B"),
    ] = None,
    plane: Annotated[
        int | None, typer.Option("--plane", help="T0 x T1 of the links of this plane.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Draw into this file as well.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw into this file as well.")] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Probe everything first.")] = False,
    count: CountOption = DEFAULT_COUNT,
    samples: Annotated[
        Path | None, typer.Option("--samples", help="Samples file (default: of the last probe).")
    ] = None,
    min_probes: Annotated[
        int, typer.Option("--min-probes", help="Fewer probes than this are no data.", min=1)
    ] = 1,
    loss: Annotated[
        tuple[float, float] | None,
        typer.Option("--loss", help="Loss in % from which degraded, and bad.", metavar="D B"),
    ] = None,
    rtt: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--rtt", help="Multiples of the median RTT from which degraded, and bad.", metavar="D B"
        ),
    ] = None,
    topo: TopoOption = None,
    run_dir: RunDirOption = None,
    policy: PolicyOption = None,
) -> None:
    """Draw heat maps: a pair of T0 groups, a plane, or (without either) all planes and one pair."""
    session = Session.of(run_dir, topo, policy)
    if (png or svg) and (pair is None) == (plane is None):
        raise CommandError("a picture shows one map: choose it with either --pair or --plane")
    _check_suffix(png, ".png")
    _check_suffix(svg, ".svg")
    limits = _thresholds(min_probes, loss, rtt)
    if probe:
        measured = measure(session, Selection(), count=count, output=samples)
    else:
        measured = _stored(session, samples)
    fabric, overlay = session.fabric, session.overlay
    maps: list[HeatMap] = []
    if pair is None:
        planes = range(fabric.planes) if plane is None else [plane]
        maps += [plane_heatmap(measured, fabric, p, overlay, limits) for p in planes]
    if plane is None:
        source, destination = pair or (0, fabric.groups - 1)
        maps.append(pair_heatmap(measured, fabric, source, destination, overlay, limits))
    for number, drawn in enumerate(maps):
        if number:
            console.print()
        print_heatmap(drawn, console)
        for path in (png, svg):
            if path is not None:
                save_figure(drawn, path)
                console.print(f"drawn into {path}")


def _check_suffix(path: Path | None, suffix: str) -> None:
    if path is not None and path.suffix != suffix:
        raise CommandError(f"{path}: --{suffix[1:]} writes a file that ends in {suffix}")


def _stored(session: Session, samples: Path | None) -> Samples:
    path = samples or session.run_dir / SAMPLES_FILE
    if not path.exists():
        raise CommandError(
            f"no samples at {path}: run `mrcctl probe` first, or give --probe or --samples"
        )
    return load_samples(path)


def _thresholds(
    min_probes: int, loss: tuple[float, float] | None, rtt: tuple[float, float] | None
) -> Thresholds:
    default = Thresholds()
    lower, upper = loss or (100 * default.loss_degraded, 100 * default.loss_bad)
    slow, slowest = rtt or (default.rtt_degraded, default.rtt_bad)
    try:
        return Thresholds(
            loss_degraded=lower / 100,
            loss_bad=upper / 100,
            rtt_degraded=slow,
            rtt_bad=slowest,
            min_probes=min_probes,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
