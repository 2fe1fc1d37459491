"""How exact quantised models are, against ONNX Runtime without optimisations.

    python -m benchmarks.quantised.exactness                 the static models, and trained ones
    python -m benchmarks.quantised.exactness detector --inputs 5 --target x86-64-v3

Two tables. `layers`: each layer is given the same 8-bit values (cut.py); of its outputs the share
that is equal, the share within one step, and the largest difference in steps; over all layers and
for the worst one. `whole`: the same for the outputs of the whole model, with the equality of the
largest output (top-1). The rows `onnxruntime …` are ONNX Runtime at its own levels of optimisation:
what differs there, differs between two correct programs. A value that is exactly between two
integers, or within the rounding error of f32 sums, may go either way, and every later layer turns
a step into many: networks with random weights most of all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx

import ingot
from benchmarks.quantised import models
from benchmarks.quantised.cut import (
    LEVELS,
    cut,
    given,
    onnxruntime_outputs,
    output_steps,
    quantised_values,
    values_of,
)
from ingot.support.text import columns

OUT = models.ROOT / "build" / "bench" / "quantised-exactness.json"
Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]


@dataclass(frozen=True)
class Agreement:
    """Of one tensor's elements, in steps of its quantiser."""

    name: str
    elements: int
    equal: float  # share
    within_one: float  # share of those at most one step apart
    largest: float  # difference in steps
    top_1: float  # share of rows whose largest element is at the same place


def agreement(name: str, got: np.ndarray, want: np.ndarray, step: float) -> Agreement:
    a, b = got.astype(np.float64), want.astype(np.float64)
    apart = np.abs(a - b) / step
    one = 1 + 1e-4  # a difference of two f32 multiples of a step is not exactly a step
    same = np.argmax(a, -1) == np.argmax(b, -1) if a.ndim else np.array(True)
    shares = (float(np.mean(x)) for x in (apart < 1e-4, apart <= one))
    return Agreement(name, a.size, *shares, float(apart.max(initial=0)), float(np.mean(same)))


def worst(found: Sequence[Agreement]) -> Agreement:
    return min(found, key=lambda a: (a.within_one, a.equal))


def together(name: str, found: Sequence[Agreement]) -> Agreement:
    weights = [a.elements for a in found]
    shares = [
        float(np.average([getattr(a, key) for a in found], weights=weights))
        for key in ("equal", "within_one")
    ]
    top_1 = float(np.mean([a.top_1 for a in found]))
    return Agreement(name, sum(weights), *shares, max(a.largest for a in found), top_1)


def runners(model: onnx.ModelProto, target: str, levels: Sequence[str]) -> dict[str, Run]:
    """Ingot, and ONNX Runtime at some levels of optimisation."""
    exe = ingot.compile(model, target=target, threads=2)
    found: dict[str, Run] = {"ingot": lambda feeds: exe.run(None, feeds)}
    for level in levels:
        found[f"onnxruntime {level.removeprefix('ORT_ENABLE_').lower()}"] = (
            lambda feeds, level=level: onnxruntime_outputs(model, feeds, level)
        )
    return found


def check_layers(
    model: onnx.ModelProto,
    inputs: Sequence[Arrays],
    target: str = "cpu",
    levels: Sequence[str] = LEVELS[1:],
) -> dict[str, list[Agreement]]:
    """Runner → the agreement of each layer, over all inputs."""
    names = quantised_values(model)
    values = [values_of(model, names, feeds) for feeds in inputs]
    layered = cut(model, values[0])
    found: dict[str, list[Agreement]] = {}
    for label, run in runners(layered, target, levels).items():
        got = [dict(zip(names, run({**f, **given(v)}))) for f, v in zip(inputs, values)]
        found[label] = [
            agreement(
                name, np.stack([g[name] for g in got]), np.stack([v[name] for v in values]), 1
            )
            for name in names
        ]
    return found


def check_whole(
    model: onnx.ModelProto,
    inputs: Sequence[Arrays],
    target: str = "cpu",
    levels: Sequence[str] = LEVELS[1:],
) -> dict[str, list[Agreement]]:
    """Runner → the agreement of each output, over all inputs."""
    names = [value.name for value in model.graph.output]
    wants = [dict(zip(names, onnxruntime_outputs(model, feeds))) for feeds in inputs]
    steps = output_steps(model, wants[0])
    found: dict[str, list[Agreement]] = {}
    for label, run in runners(model, target, levels).items():
        got = [dict(zip(names, run(feeds))) for feeds in inputs]
        found[label] = [
            agreement(n, np.stack([g[n] for g in got]), np.stack([w[n] for w in wants]), steps[n])
            for n in names
        ]
    return found


HEAD = ("model", "what", "runner", "tensors", "elements", "equal", "within one step",
        "largest difference", "top-1 equal", "of the worst: equal", "within one",
        "name")  # fmt: skip


def rows(name: str, what: str, found: Mapping[str, Sequence[Agreement]]) -> list[tuple[str, ...]]:
    made = []
    for label, agreements in found.items():
        total, least = together(label, agreements), worst(agreements)
        top = f"{100 * total.top_1:.0f} %" if what == "whole" else "-"
        made.append((
            name, what, label, str(len(agreements)), str(total.elements), _share(total.equal),
            _share(total.within_one), f"{total.largest:.3g}", top, _share(least.equal),
            _share(least.within_one), least.name[:40],
        ))  # fmt: skip
    return made


def _share(value: float) -> str:
    """Four digits after the point, and never 100 % of what is not all."""
    shown = f"{100 * value:.4f} %"
    return shown if value == 1 or shown != "100.0000 %" else "99.9999 %"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantised.exactness")
    static = [model.name for model in (*models.STATIC, *models.TRAINED)]
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(static))
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--target", default="cpu")
    given_words = parser.parse_args()
    results, table = [], []
    for name in given_words.names or static:
        case = models.make(name)
        model = onnx.load(case.int8)
        inputs = [case.feeds(seed) for seed in range(given_words.inputs)]
        for what, check in (("layers", check_layers), ("whole", check_whole)):
            found = check(model, inputs, given_words.target)
            table += (made := rows(name, what, found))
            print("\n".join("  ".join(row) for row in made), flush=True)
            data = {label: [asdict(a) for a in all_] for label, all_ in found.items()}
            results.append({"model": name, "what": what, "agreements": data})
    print("\n".join(columns([HEAD, *table])))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    Path(OUT).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
