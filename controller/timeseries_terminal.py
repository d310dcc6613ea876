# SPDX-License-Identifier: Apache-2.0
"""Rates over time in a terminal: one small plot per line, all with the same axes.

Lines are told apart by where they stand, not by colour; a `?` is time of which nothing is known,
and events are letters over the plots with their meaning below.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.timeseries import (
    Floats,
    Series,
    bins,
    event_letters,
    nice_ceiling,
    phases,
)

STYLE = "#33576f"
ROWS_OF_ALL = 32
"""About as many lines as all plots together take: with few lines each is higher."""
MAX_ROWS = 5
MIN_COLUMNS = 20
UNKNOWN = "?"
_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "  ..::###"
_AXIS = {True: ("┤", "│", "┼", "─"), False: ("|", "|", "+", "-")}


def print_series(series: Series, console: Console) -> None:
    """Prints title, plots, events and the mean rates between events in the console's width."""
    unicode = console.encoding.lower().startswith("utf")
    for line in plot_lines(series, console.width, unicode):
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    _print_events(series, console)
    console.print(_phases_table(series))


def plot_lines(series: Series, width: int, unicode: bool = True) -> list[Text]:
    """The plots with their axes as lines of at most `width` characters."""
    known = series.rates[~np.isnan(series.rates)]
    top = nice_ceiling(float(known.max()) if len(known) else 0.0)
    scale = f"{top:,g}"
    label = max(len(name) for name in series.labels)
    margin = label + 1 + len(scale) + 1
    columns = max(width - margin - 2, MIN_COLUMNS)
    start, end = float(series.edges_s[0]), float(series.edges_s[-1])
    of_columns = bins(series, np.linspace(start, end, columns + 1))
    rows = min(MAX_ROWS, max(1, ROWS_OF_ALL // len(series.labels) - 1))

    upper, side, corner, floor = _AXIS[unicode]
    lines = [Text(f"{series.title}, packets/s", style="bold")]
    letters = _event_columns(series, columns)
    if letters:
        lines.append(Text(" " * (margin + 1) + letters))
    for number, name in enumerate(series.labels):
        for row, cells in enumerate(_bars(of_columns[:, number], top, rows, unicode)):
            head = name if row == 0 else ""
            at = scale if row == 0 else ""
            line = Text(f"{head:<{label}} {at:>{len(scale)}} {upper if row == 0 else side}")
            line.append(cells, style=STYLE)
            lines.append(line)
        lines.append(Text(f"{'':<{label}} {'0':>{len(scale)}} {corner}{floor * columns}"))
    lines.append(Text(" " * (margin + 1) + _ticks(end - start, columns)))
    return lines


def _bars(values: Floats, top: float, rows: int, unicode: bool) -> list[str]:
    """The rows of one plot, the uppermost first."""
    blocks = _BLOCKS if unicode else _ASCII_BLOCKS
    unknown = np.isnan(values)
    eighths = np.rint(np.where(unknown, 0.0, values) / top * 8 * rows).astype(int)
    # What is little is not nothing.
    eighths[(eighths == 0) & (np.where(unknown, 0.0, values) > 0)] = 1
    result = []
    for row in range(rows - 1, -1, -1):
        levels = np.clip(eighths - 8 * row, 0, 8).tolist()
        cells = [blocks[level] for level in levels]
        if row == 0:
            cells = [
                UNKNOWN if missing else cell for cell, missing in zip(cells, unknown, strict=True)
            ]
        result.append("".join(cells))
    return result


def _event_columns(series: Series, columns: int) -> str:
    """The events' letters over their times; those that fall together follow one another."""
    start, seconds = float(series.edges_s[0]), series.seconds
    letters = event_letters(series.events)
    line = ""
    for number, (letter, event) in enumerate(letters):
        share = (event.at_s - start) / seconds if seconds else 0.0
        last = columns - sum(len(later) for later, _ in letters[number:])
        line = line.ljust(max(min(int(share * columns), last), 0)) + letter
    return line


def _ticks(seconds: float, columns: int) -> str:
    """Times under the plots, about one in fifteen columns."""
    step = nice_ceiling(seconds * 15 / columns)
    line = ""
    for number in range(int(seconds / step + 1e-9) + 1):
        at = number * step
        text = f"{at:g} s"
        column = min(round(at / seconds * columns) if seconds else 0, columns - len(text))
        if not line or column > len(line):
            line = line.ljust(column) + text
    return line


def _print_events(series: Series, console: Console) -> None:
    for letter, event in event_letters(series.events):
        console.print(Text(f"  {letter}  {event.at_s:.2f} s: {event.text}"))


def _phases_table(series: Series) -> Table:
    """Mean rates by line (down) and phase (across)."""
    table = Table(box=None, pad_edge=False)
    table.add_column("Mean packets/s")
    found = phases(series)
    for phase in found:
        table.add_column(f"{phase.start_s:.2f} - {phase.end_s:.2f} s", justify="right")
    for number, label in enumerate(series.labels):
        table.add_row(label, *(_rate(float(phase.rates[number])) for phase in found))
    return table


def _rate(value: float) -> str:
    return "no data" if np.isnan(value) else f"{value:,.0f}"
