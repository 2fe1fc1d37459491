"""A bar chart of the speedup over the best peer, for each model and thread count, on a log scale.

In: rows of tables.py. Out: a PNG. Bars above the line at 1 are models on which Ingot is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.tables import OURS, SPEEDUP, Row


def plot(found: Sequence[Row], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # a file, no window
    from matplotlib import pyplot

    timed = [row for row in found if row.get(OURS, {}).get(SPEEDUP)]
    names = list(dict.fromkeys(row["model"] for row in timed))
    counts = sorted({row["threads"] for row in timed})
    width = 0.8 / max(1, len(counts))
    figure, axes = pyplot.subplots(figsize=(max(6, 0.7 * len(names)), 4.5))
    for number, threads in enumerate(counts):
        own = {row["model"]: row[OURS][SPEEDUP] for row in timed if row["threads"] == threads}
        places = [i + (number - (len(counts) - 1) / 2) * width for i in range(len(names))]
        # bars start at 1: slower models extend below
        heights = [own.get(name, 1.0) - 1 for name in names]
        label = f"{threads} thread{'s' * (threads > 1)}"
        axes.bar(places, heights, width, bottom=1, label=label)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_ylabel("speedup vs best peer")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
