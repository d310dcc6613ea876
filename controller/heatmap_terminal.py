# SPDX-License-Identifier: Apache-2.0
"""Heat maps in a terminal.

Small maps show loss and round trip in each cell. Larger ones show signs only, in bands as wide as
the terminal; beyond that several links share a cell, which then shows the worst of them, so that a
fault is never averaged away. Colours come on top (rich leaves them out where NO_COLOR is set or the
output is no terminal).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.heatmap import DENIED, SIGNS, HeatMap, Sign, format_loss, format_rtt
from controller.quality import Grade

STYLES = {
    Grade.GOOD: "black on #b3cde3",
    Grade.DEGRADED: "black on #fdae61",
    Grade.BAD: "bold white on #a50026",
    Grade.NO_DATA: "",
}
MAX_LINES = 64
"""A map with more lines than this is pooled."""
MIN_DETAILED_COLUMN = 19
"""Characters of a cell with loss and round trip, and the space after it."""
TICK = 4
"""Every how many columns a number stands above a band."""


def print_heatmap(heatmap: HeatMap, console: Console) -> None:
    """Prints title, map and legend in at most the console's width."""
    unicode = console.encoding.lower().startswith("utf")
    console.print(Text(heatmap.title, style="bold"))
    console.print(Text(heatmap.subtitle, style="dim"))
    console.print(Text(f"{heatmap.row_label} (down) x {heatmap.column_label} (across)\n"))
    widest = console.width // MIN_DETAILED_COLUMN
    if len(heatmap.columns) <= widest and len(heatmap.rows) <= MAX_LINES:
        console.print(_detailed_table(heatmap, unicode))
    else:
        _print_signs(heatmap, console, unicode)
    _print_legend(heatmap, console, unicode)


def _sign(sign: Sign, unicode: bool) -> str:
    return sign.text if unicode else sign.ascii


def _cell(grade: int, denied: bool, unicode: bool) -> str:
    mark = _sign(DENIED, unicode) if denied else " "
    return _sign(SIGNS[Grade(grade)], unicode) + mark


def _detailed_table(heatmap: HeatMap, unicode: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", justify="right")
    for name in heatmap.columns:
        table.add_column(name, justify="left", no_wrap=True)
    quality, grades = heatmap.quality, heatmap.grades
    for row, name in enumerate(heatmap.rows):
        cells = []
        for column in range(len(heatmap.columns)):
            grade = Grade(grades[row, column])
            text = _cell(grade, bool(heatmap.denied[row, column]), unicode)
            if grade is not Grade.NO_DATA:
                text += f" {format_loss(quality.loss[row, column]):<5}"
                if not np.isnan(quality.rtt_median_s[row, column]):
                    rtt = format_rtt(quality.rtt_median_s[row, column])
                    text += f" {rtt if unicode else rtt.replace('µ', 'u')}"
            cells.append(Text(f" {text} ", style=STYLES[grade]))
        table.add_row(name, *cells)
    return table


@dataclass(frozen=True)
class _Pooled:
    """A map whose cells are the worst of blocks of cells."""

    grades: NDArray[np.uint8]
    denied: NDArray[np.bool_]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    block: tuple[int, int]


def _pool(heatmap: HeatMap, row_block: int, column_block: int) -> _Pooled:
    row_starts = np.arange(0, len(heatmap.rows), row_block)
    column_starts = np.arange(0, len(heatmap.columns), column_block)

    def worst(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
        by_row = np.maximum.reduceat(cells, row_starts, axis=0)
        pooled: NDArray[np.uint8] = np.maximum.reduceat(by_row, column_starts, axis=1)
        return pooled

    return _Pooled(
        worst(heatmap.grades),
        worst(heatmap.denied.astype(np.uint8)) > 0,
        _ranges(heatmap.rows, row_block),
        _ranges(heatmap.columns, column_block),
        (row_block, column_block),
    )


def _ranges(names: tuple[str, ...], block: int) -> tuple[str, ...]:
    groups = [names[at : at + block] for at in range(0, len(names), block)]
    return tuple(group[0] if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)


def _print_signs(heatmap: HeatMap, console: Console, unicode: bool) -> None:
    label = max(len(name) for name in _ranges(heatmap.rows, -(-len(heatmap.rows) // MAX_LINES))) + 1
    per_band = max((console.width - label) // 2, 1)
    if per_band > TICK:
        per_band -= per_band % TICK
    bands = -(-len(heatmap.columns) // per_band)
    if len(heatmap.rows) * bands <= MAX_LINES:
        pooled = _pool(heatmap, 1, 1)
    else:
        row_block = -(-len(heatmap.rows) // MAX_LINES)
        pooled = _pool(heatmap, row_block, bands)
    for start in range(0, len(pooled.columns), per_band):
        _print_band(pooled, console, unicode, label, slice(start, start + per_band))
    if pooled.block != (1, 1):
        console.print(
            f"Each cell is the worst of {pooled.block[0]} x {pooled.block[1]} "
            f"({heatmap.row_label} x {heatmap.column_label.split()[0]}).\n"
        )


def _print_band(
    pooled: _Pooled, console: Console, unicode: bool, label: int, columns: slice
) -> None:
    header = " " * label
    for at, name in enumerate(pooled.columns[columns]):
        column = label + 2 * at
        if at % TICK == 0 and len(header) <= column:
            header = header.ljust(column) + name.split("-")[0]
    console.print(Text(header, no_wrap=True, overflow="crop"))
    for row, name in enumerate(pooled.rows):
        line = Text(f"{name:>{label - 1}} ", no_wrap=True)
        cells = zip(pooled.grades[row, columns], pooled.denied[row, columns], strict=True)
        for grade, denied in cells:
            line.append(_cell(int(grade), bool(denied), unicode), style=STYLES[Grade(grade)])
        console.print(line)
    console.print()


def _print_legend(heatmap: HeatMap, console: Console, unicode: bool) -> None:
    console.print()
    for grade, meaning in heatmap.legend():
        sign = DENIED if grade is None else SIGNS[grade]
        line = Text(" ")
        line.append(f" {_sign(sign, unicode)} ", style="" if grade is None else STYLES[grade])
        line.append(f" {sign.name}: {meaning if unicode else _ascii(meaning)}")
        console.print(line)
    console.print(Text(f"  {heatmap.note() if unicode else _ascii(heatmap.note())}", style="dim"))


def _ascii(text: str) -> str:
    return text.replace("≥", ">=").replace("µ", "u")
