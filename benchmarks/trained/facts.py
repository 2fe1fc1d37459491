"""What the outputs of a trained model should be:  python -m benchmarks.trained.facts NAME

Out: JSON on stdout. `spread`: the largest relative difference between the outputs of ONNX Runtime
with and without its graph optimisations; `exact`: a file of the outputs in float64. It runs in a
process of its own, so that none of its memory is left while runtimes are timed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import onnxruntime

from benchmarks import exact
from benchmarks.trained.files import Trained, models
from benchmarks.trained.inputs import feeds_of
from benchmarks.zoo.common import zoo_folder
from ingot.cli.compare import distance
from ingot.cli.peers.task import save_outputs
from ingot.support.errors import IngotError


def facts(model: Trained) -> dict[str, Any]:
    """The facts of one model; made once."""
    feeds, stem = feeds_of(model), zoo_folder() / "trained" / model.sha256
    known = stem.with_suffix(".json")
    if not known.exists():
        levels = ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
        plain, optimised = (_outputs(model, feeds, level) for level in levels)
        spread = max((distance(a, b) for a, b in zip(optimised, plain)), default=0.0)
        known.write_text(json.dumps({"spread": spread, **_exact(model, feeds)}))
    return json.loads(known.read_text())


def _outputs(model: Trained, feeds: dict[str, np.ndarray], level: str) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(model.path()), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def _exact(model: Trained, feeds: dict[str, np.ndarray]) -> dict[str, str]:
    """The file of the float64 outputs; none where the interpreter lacks an operator."""
    file = zoo_folder() / "trained" / f"{model.sha256}-exact.npz"
    try:
        save_outputs(str(file), exact.outputs(model.path(), {}, feeds))
    except IngotError as why:
        return {"no_exact": str(why)}
    return {"exact": str(file)}


if __name__ == "__main__":
    (found,) = [model for model in models() if model.name == sys.argv[1]]
    print(json.dumps(facts(found)))
