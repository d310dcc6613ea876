# SPDX-License-Identifier: Apache-2.0
"""Rates over time as PNG and SVG.

Every line has its own colour, dash pattern and marker, so that a print in grey, or an eye that
tells few colours apart, loses nothing. matplotlib is imported when a figure is drawn (see
heatmap_figure.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.timeseries import Series, event_letters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which differ for every colour vision, without the yellow.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = "os^Dvx*P"
DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    "-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)),
)  # fmt: skip
MARKERS_PER_LINE = 12
SUFFIXES = (".png", ".svg")


class SeriesFigureError(ValueError):
    """A picture that cannot be written; the message says what is allowed."""


def save_series(series: Series, path: str | Path) -> None:
    """Draws the series into a `.png` or `.svg` file; raises `SeriesFigureError` for others."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise SeriesFigureError(
            f"{path}: a picture as {path.suffix or 'no suffix'}; allowed: {', '.join(SUFFIXES)}"
        )
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # A fixed salt and no date: the same series gives the same SVG.
    with rc_context({"svg.hashsalt": "mrc-fabric", "svg.fonttype": "path"}):
        figure = draw(series)
        FigureCanvasAgg(figure)
        metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=110, metadata=metadata)


def draw(series: Series) -> Figure:
    """The series as a matplotlib figure without a canvas of its own."""
    from matplotlib.figure import Figure

    letters = event_letters(series.events)
    figure = Figure(figsize=(9.0, 4.6 + 0.18 * len(letters)), layout="constrained")
    axes = figure.add_subplot()
    middles = (series.edges_s[:-1] + series.edges_s[1:]) / 2
    for number, label in enumerate(series.labels):
        # Markers of different lines at different times, or they hide each other.
        step = max(1, len(middles) // MARKERS_PER_LINE)
        axes.plot(
            middles,
            series.rates[:, number],
            label=label,
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            markevery=(number * step // len(series.labels), step),
            linewidth=1.4,
        )
    axes.set_title(series.title, loc="left", fontsize=11, weight="bold")
    axes.set_xlabel(
        "\n".join(
            ["seconds", *(f"{name}: {event.at_s:.2f} s, {event.text}" for name, event in letters)]
        ),
        fontsize=8.5,
    )
    axes.set_ylabel("packets per second", fontsize=8.5)
    axes.set_xlim(series.edges_s[0], series.edges_s[-1])
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd", linewidth=0.6)
    for letter, event in letters:
        axes.axvline(event.at_s, color="#555555", linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            letter, (event.at_s, 1), xycoords=("data", "axes fraction"), xytext=(2, -2),
            textcoords="offset points", va="top", fontsize=9, weight="bold",
        )  # fmt: skip
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, handlelength=4, frameon=False
    )
    if np.isnan(series.rates).any():
        axes.text(
            1.01, 0.0, "gaps: not read", transform=axes.transAxes, fontsize=7.5, color="#444444"
        )
    return figure
