"""A model's outputs in float64 (ingot/inspect/exact.py), for the errors in the tables of results.

In: a model, its sizes, inputs by name. Out: outputs. Called by facts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ingot import api
from ingot.inspect.exact import exact_outputs
from ingot.support import lazy


def outputs(
    model: Path | bytes, sizes: Mapping[str, int], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The model's outputs for these inputs, floats as float64."""
    session = api.make_session(shapes=dict(sizes))
    graph = lazy.load("pipeline").run_stages(model, session, stop_after="import")
    return exact_outputs(graph, session.store, feeds)
