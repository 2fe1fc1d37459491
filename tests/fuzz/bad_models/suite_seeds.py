"""Models of ONNX's own suite as seeds: a few small ones of every operator that it has cases of.

In: the case modules of `onnx.backend.test`. Out: models by name. Called by corpus.py. They bring
sequences, optionals, strings, maps, random numbers, sub-byte types and the newest operators.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings

import onnx
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.loader import load_model_tests

PER_OPERATOR = 2
MOST_BYTES = 4000
# their expected outputs take seconds to compute, and the corpus has models of these operators
SLOW_MODULES = {"averagepool", "lppool", "maxpool", "loop_extended"}


def suite_models() -> dict[str, onnx.ModelProto]:
    """By the name of the case; the smallest of each operator, and all small whole models."""
    sized: dict[str, list[tuple[int, str, onnx.ModelProto]]] = {}
    for case in _node_cases():
        size = case.model.ByteSize()
        if "_expanded" not in case.name and size <= MOST_BYTES and case.model.graph.node:
            op = case.model.graph.node[-1].op_type
            sized.setdefault(op, []).append((size, case.name, case.model))
    chosen = [row for op in sorted(sized) for row in _some(sized[op])]
    models = {name: model for _, name, model in chosen}
    for case in sorted(load_model_tests(kind="simple"), key=lambda case: case.name):
        models[case.name] = onnx.load(f"{case.model_dir}/model.onnx")
    return models


def _some(rows: list[tuple[int, str, onnx.ModelProto]]) -> list[tuple[int, str, onnx.ModelProto]]:
    """The smallest and the one in the middle: variants differ in their operands."""
    rows = sorted(rows, key=lambda row: row[:2])
    return list({row[1]: row for row in (rows[0], rows[len(rows) // 2])}.values())[:PER_OPERATOR]


def _node_cases() -> list:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for found in pkgutil.iter_modules(node_cases.__path__):
            if found.name not in SLOW_MODULES:
                importlib.import_module(f"{node_cases.__name__}.{found.name}")
    return node_cases._NodeTestCases
