"""Work and float64 outputs of a benchmark model:  python -m benchmarks.facts NAME FOLDER

In: a model of models.py. Out: its useful FLOPs and weight bytes (work.py) as JSON on stdout, and
its outputs in float64 (exact.py) in a file that is written once. peers.py runs it in a process of
its own, so that none of its memory is left while runtimes are timed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exact, models
from benchmarks.work import work_of
from ingot.cli.peers.task import save_outputs


def facts(name: str, folder: Path) -> dict[str, Any]:
    case = models.make(name, folder)
    file = exact_file(case, folder)
    if not file.exists() or file.stat().st_mtime < case.file.stat().st_mtime:
        with np.load(case.feeds, allow_pickle=False) as feeds:
            save_outputs(str(file), exact.outputs(case.file, case.sizes, feeds))
    return {**asdict(work_of(case.file, case.sizes)), "exact": str(file)}


def exact_file(case: models.Case, folder: Path) -> Path:
    return folder / f"{case.name.removesuffix(models.DYNAMIC)}-exact.npz"


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1], Path(sys.argv[2]))))
