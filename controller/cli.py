# SPDX-License-Identifier: Apache-2.0
"""``mrcctl``: compute, push, watch and measure an MRC fabric."""

from __future__ import annotations

import typer

from controller import cli_devices, cli_ev, cli_peers, cli_plot, cli_quality, cli_topo, cli_watch
from controller.cli_common import ErrorReporting

app = typer.Typer(
    name="mrcctl",
    cls=ErrorReporting,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=__doc__,
)
app.add_typer(cli_topo.topo, name="topo")
app.add_typer(cli_topo.routes, name="routes")
app.add_typer(cli_devices.policy, name="policy")
app.add_typer(cli_peers.peers, name="peers")
app.add_typer(cli_ev.ev, name="ev")
app.command("path")(cli_topo.path)
app.command("push")(cli_devices.push_command)
app.command("status")(cli_devices.status)
app.command("counters")(cli_devices.counters)
app.command("probe")(cli_quality.probe)
app.command("heatmap")(cli_quality.heatmap)
app.command("plot")(cli_plot.plot)
app.command("watch")(cli_watch.watch)


def main() -> None:
    """The console script."""
    app()
