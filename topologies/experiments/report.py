# SPDX-License-Identifier: Apache-2.0
"""What an experiment has to say: statements that hold or do not, and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from controller.timeseries import Series
from controller.timeseries_figure import save_series
from controller.timeseries_terminal import print_series


@dataclass
class Report:
    """Prints as it goes along; `failed` keeps the statements that do not hold.

    `progress` says what is being done, `pictures` is the directory for plots (None: no files).
    """

    console: Console
    progress: Callable[[str], None]
    pictures: Path | None = None
    failed: list[str] = field(default_factory=list)

    def check(self, holds: bool, statement: str) -> None:
        """A statement that must hold, with its figures in it."""
        if holds:
            self.console.print(f"[bold green]holds:[/] {escape(statement)}")
        else:
            self.failed.append(statement)
            self.console.print(f"[bold red]does not hold:[/] {escape(statement)}")

    def plot(self, series: Series, name: str) -> None:
        """Draw on the terminal, and into `name`.png where pictures are wanted."""
        self.console.print()
        print_series(series, self.console)
        self.console.print()
        if self.pictures is not None:
            path = self.pictures / f"{name}.png"
            save_series(series, path)
            self.console.print(f"drawn into {path}")
