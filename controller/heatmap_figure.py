# SPDX-License-Identifier: Apache-2.0
"""Heat maps as PNG and SVG.

matplotlib is imported when a figure is drawn, because it takes most of a second, and without
pyplot, because that would keep figures in a global list.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.heatmap import DENIED, SIGNS, HeatMap, format_loss, format_rtt
from controller.quality import Grade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Light blue, orange and dark red differ for every colour vision and in brightness.
COLOURS = {
    Grade.NO_DATA: "#ffffff",
    Grade.GOOD: "#b3cde3",
    Grade.DEGRADED: "#fdae61",
    Grade.BAD: "#a50026",
}
INK = {
    Grade.NO_DATA: "#777777",
    Grade.GOOD: "#33576f",
    Grade.DEGRADED: "#000000",
    Grade.BAD: "#ffffff",
}
MARKERS = {Grade.GOOD: "o", Grade.DEGRADED: "^", Grade.BAD: "X", Grade.NO_DATA: "$?$"}
DENIED_INK = "#111111"
DENIED_CORNER = 0.38
"""Side of a denied cell's black corner, as a share of the cell's height."""

BAND_COLUMNS = 64
"""A flat map (few rows, many columns) is folded into bands of this many columns."""
MIN_SIGN_POINTS = 7
"""In narrower cells only faults have a sign, larger than the cell where they are few."""
MAX_POLYGONS = 10_000
DETAIL_CELLS = 128
"""Up to this many cells each shows its loss and round trip."""


class HeatMapFigureError(ValueError):
    """A picture that cannot be written; the message says what is allowed."""


def save_figure(heatmap: HeatMap, path: str | Path) -> None:
    """Draws the map into a `.png` or `.svg` file; raises `HeatMapFigureError` for others."""
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise HeatMapFigureError(
            f"{path}: a picture as {path.suffix or 'no suffix'}; allowed: .png, .svg"
        )
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # A fixed salt and no date: the same map gives the same SVG.
    with rc_context({"svg.hashsalt": "mrc-fabric", "svg.fonttype": "path"}):
        figure = draw(heatmap)
        FigureCanvasAgg(figure)
        metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=110, metadata=metadata)


def draw(heatmap: HeatMap) -> Figure:
    """The map as a matplotlib figure without a canvas of its own."""
    from matplotlib.figure import Figure

    rows, columns = len(heatmap.rows), len(heatmap.columns)
    fold = rows <= 16 and columns > BAND_COLUMNS
    per_band = BAND_COLUMNS if fold else columns
    bands = [slice(start, min(start + per_band, columns)) for start in range(0, columns, per_band)]
    detailed = rows * columns <= DETAIL_CELLS and columns <= 16
    cell_width = 1.0 if detailed else min(0.2, max(0.03, min(14 / per_band, 14 / rows)))
    cell_height = 0.62 if detailed else cell_width

    legend = heatmap.legend()
    head, gap, foot, left, right = 0.75, 0.55, 0.9 + 0.22 * (len(legend) + 1), 0.75, 0.25
    height = head + len(bands) * (rows * cell_height + gap) + foot - gap
    width = max(left + per_band * cell_width + right, 7.2)
    figure = Figure(figsize=(width, height))
    figure.text(0.2 / width, 1 - 0.3 / height, heatmap.title, fontsize=12, weight="bold")
    figure.text(0.2 / width, 1 - 0.55 / height, heatmap.subtitle, fontsize=8.5, color="#444444")
    top = height - head
    for band in bands:
        band_columns = band.stop - band.start
        bottom = top - rows * cell_height
        axes = figure.add_axes(
            (
                left / width,
                bottom / height,
                band_columns * cell_width / width,
                rows * cell_height / height,
            )
        )
        _draw_band(heatmap, axes, band, detailed, (cell_width, cell_height))
        axes.set_ylabel(heatmap.row_label, fontsize=9)
        if band is bands[-1]:
            axes.set_xlabel(heatmap.column_label, fontsize=9)
        top = bottom - gap
    _draw_legend(heatmap, figure, (width, height, foot), cell_width)
    return figure


def _draw_band(
    heatmap: HeatMap, axes: Axes, band: slice, detailed: bool, cell_inches: tuple[float, float]
) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import ListedColormap

    grades = heatmap.grades[:, band]
    denied = heatmap.denied[:, band]
    rows, columns = grades.shape
    colours = ListedColormap([COLOURS[Grade(grade)] for grade in sorted(COLOURS)])
    edges = np.arange(columns + 1) + band.start - 0.5, np.arange(rows + 1) - 0.5
    mesh = axes.pcolormesh(*edges, grades, cmap=colours, vmin=0, vmax=len(Grade) - 1)
    cell_width, cell_height = cell_inches
    if cell_width >= 0.1:
        mesh.set(edgecolor="#888888", linewidth=0.4)
    # As polygons 131,072 cells would make an SVG of 20 MB.
    mesh.set_rasterized(grades.size > MAX_POLYGONS)
    axes.invert_yaxis()

    points = 72 * cell_width
    signed = points >= MIN_SIGN_POINTS
    for grade, marker in MARKERS.items():
        at_row, at_column = np.nonzero(grades == grade)
        ink, size, lift = INK[grade], 0.45 * points, 0.0
        if detailed:
            size, lift = 9, 0.22  # the numbers stand below
        elif not signed:
            if grade in (Grade.GOOD, Grade.NO_DATA):
                continue
            size, ink = (6 if len(at_row) < 500 else points), "#000000"
        if grade is Grade.GOOD:
            size *= 0.5
        axes.scatter(
            at_column + band.start,
            at_row - lift,
            size**2,
            ink,
            marker=marker,
            linewidths=0,
            clip_on=False,
        )
    if detailed:
        _draw_numbers(heatmap, axes)

    # Denied: a black corner, which leaves sign and numbers of the cell readable.
    at_row, at_column = np.nonzero(denied)
    corner = np.stack([at_column + band.start + 0.5, at_row + 0.5], axis=1)[:, np.newaxis]
    side = (DENIED_CORNER if signed else 1.0) * np.array([cell_height / cell_width, 1.0])
    triangles = corner - np.array([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]) * side
    rim = 0.5 if signed else 0  # sets the corner off from a dark cell
    axes.add_collection(
        PolyCollection(list(triangles), facecolors=DENIED_INK, edgecolors="white", linewidths=rim)
    )
    _draw_ticks(heatmap, axes, band, detailed)


def _draw_numbers(heatmap: HeatMap, axes: Axes) -> None:
    quality, grades = heatmap.quality, heatmap.grades
    for row, column in itertools.product(range(grades.shape[0]), range(grades.shape[1])):
        grade = Grade(grades[row, column])
        if grade is Grade.NO_DATA:
            continue
        text = f"{format_loss(quality.loss[row, column])} loss"
        if not np.isnan(quality.rtt_median_s[row, column]):
            text += f"\n{format_rtt(quality.rtt_median_s[row, column])}"
        axes.text(
            column, row + 0.2, text, ha="center", va="center", fontsize=7, color=_text_ink(grade)
        )


def _text_ink(grade: Grade) -> str:
    return "#ffffff" if grade is Grade.BAD else "#000000"


def _draw_ticks(heatmap: HeatMap, axes: Axes, band: slice, detailed: bool) -> None:
    rows, columns = len(heatmap.rows), band.stop - band.start
    row_step = 1 if rows <= 32 else 16 if rows <= 256 else 32
    column_step = 1 if detailed else 4 if columns <= 64 else 16
    at_columns = range(band.start, band.stop, column_step)
    at_rows = range(0, rows, row_step)
    axes.set_xticks(at_columns, [heatmap.columns[at] for at in at_columns], fontsize=7.5)
    axes.set_yticks(at_rows, [heatmap.rows[at] for at in at_rows], fontsize=7.5)
    axes.tick_params(length=2, pad=2)


def _draw_legend(
    heatmap: HeatMap, figure: Figure, size: tuple[float, float, float], cell_width: float
) -> None:
    """Signs on their colours with their meaning, one to a line, below the map.

    `size` is the figure's width and height and the legend's height, in inches.
    """
    width, height, foot = size
    axes = figure.add_axes((0, 0, 1, foot / height))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(0, foot)
    y = foot - 0.75
    for grade, meaning in heatmap.legend():
        colour = COLOURS[Grade.NO_DATA if grade is None else grade]
        sign = DENIED if grade is None else SIGNS[grade]
        axes.fill_between(
            [0.25, 0.55], y - 0.08, y + 0.1, facecolor=colour, edgecolor="#888888", linewidth=0.5
        )
        if grade is None:
            axes.fill([0.55, 0.55, 0.48], [y - 0.08, y - 0.01, y - 0.08], color=DENIED_INK, lw=0)
        else:
            marker_size = 3.5 if grade is Grade.GOOD else 7
            axes.scatter(
                0.4, y + 0.01, marker_size**2, INK[grade], marker=MARKERS[grade], linewidths=0
            )
        axes.text(0.65, y, f"{sign.name}: {meaning}", fontsize=8.5, va="center")
        y -= 0.22
    note = heatmap.note()
    if 72 * cell_width < MIN_SIGN_POINTS:
        note += "\nCells are too small for the signs of good cells and of those without data."
    axes.text(0.25, y + 0.06, note, fontsize=7.5, color="#444444", va="top")
