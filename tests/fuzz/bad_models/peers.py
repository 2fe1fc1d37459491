"""Mutants that Ingot ran, given to ONNX Runtime: where it has an answer too, they are the same.

In: the folder child.py left its answers in. Out: how many were compared, and what differed. Each
model is run in a process of its own, since a mutant may end ONNX Runtime's.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tests.fuzz.bad_models.child import Note, contained

RANDOM = (b"Random", b"Multinomial", b"Bernoulli", b"Dropout")
LIMIT = 1e-3  # of an output's largest value: mutants have no reason to be well conditioned


def compare_all(folder: Path) -> tuple[int, list[str]]:
    onnxruntime.set_default_logger_severity(4)
    checked, wrong = 0, []
    for path in sorted(folder.glob("*.answer")):
        record = contained(lambda note, path=path: _compare(path, note), limited=False)
        checked += "same" in record
        if record.get("same") is False:
            wrong.append(f"seed {path.stem}: {record['text']}")
    return checked, wrong


def _compare(path: Path, note: Note) -> None:
    data, feeds, answers = pickle.loads(path.read_bytes())
    if any(op in data for op in RANDOM):
        note(text="its numbers are random")
        return
    (path.parent / "model.onnx").write_bytes(data)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(path.parent / "model.onnx", options)
        names = [i.name for i in session.get_inputs()]
        wants = session.run(None, {name: feeds[name] for name in names})
    except Exception as error:  # whatever another runtime finds is its own affair
        note(text=f"no answer: {error}")
        return
    text = "; ".join(_differences(answers, wants))
    note(same=not text, text=text)


def _differences(haves: Sequence[Any], wants: Sequence[Any]) -> list[str]:
    found: list[str] = []
    for index, (have, want) in enumerate(zip(haves, wants)):
        if isinstance(want, list | dict) or want is None:  # sequences, maps, an empty optional
            found += _nested_differences(have, want, f"output {index}")
        elif want.dtype.kind == "O":
            if have.tolist() != want.tolist():
                found.append(f"output {index}: {have.reshape(-1)[:6]}, not {want.reshape(-1)[:6]}")
        elif have.shape != want.shape or have.dtype != want.dtype:
            found.append(f"output {index}: {have.dtype}{have.shape}, not {want.dtype}{want.shape}")
        elif not _is_close(have, want):
            found.append(f"output {index}: {have.reshape(-1)[:6]}, not {want.reshape(-1)[:6]}")
    return found


def _nested_differences(have: Any, want: Any, where: str) -> list[str]:
    if type(have) is not type(want) or (want is not None and len(have) != len(want)):
        return [f"{where}: {str(have)[:80]}, not {str(want)[:80]}"]
    if isinstance(want, list) and want and not isinstance(want[0], dict):
        return [f"{where}, {text}" for text in _differences(have, want)]
    return []  # of maps, the number alone: other tests compare them


def _is_close(have: np.ndarray, want: np.ndarray) -> bool:
    if want.dtype.kind in "iu":  # where numbers overflow, Ingot wraps and ONNX Runtime may not
        ends = (np.iinfo(want.dtype).min, np.iinfo(want.dtype).max)
        return bool(((have == want) | np.isin(want, ends)).all())
    if want.dtype.kind != "f":
        return bool(np.array_equal(have, want))
    a, b = have.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    largest = max(1.0, np.abs(b[finite]).max(initial=0.0))
    same_rest = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    return same_rest and bool(np.abs(a[finite] - b[finite]).max(initial=0.0) <= LIMIT * largest)
