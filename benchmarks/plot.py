"""A bar chart of the speedup over the best peer, for each model, on a log scale.

In: rows of rows.py. Out: a PNG. Bars above the line at 1 are models on which Ingot is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.rows import Row


def plot(rows: Sequence[Row], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # a file, no window
    from matplotlib import pyplot

    timed = [each for each in rows if each.get("speedup")]
    names = [each["model"] for each in timed]
    figure, axes = pyplot.subplots(figsize=(max(6, 0.5 * len(names)), 4.5))
    # bars start at 1: slower models extend below
    axes.bar(range(len(names)), [each["speedup"] - 1 for each in timed], 0.8, bottom=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_ylabel("speedup vs best peer")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
