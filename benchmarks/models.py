"""The models of `make bench`, by name: each is written once as an ONNX file.

In: a name and a folder. Out: the file, and what `ingot bench` is to be told about its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from tests.models.zoo import LIGHT, light_model

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
NAMES = ("digits", "digits-64", *LIGHT)


@dataclass(frozen=True)
class Case:
    file: Path
    options: tuple[str, ...] = ()


def make(name: str, folder: Path) -> Case:
    """The model called `name`; written if it is not there yet."""
    if name in LIGHT:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.onnx"
        if not file.exists():
            onnx.save(light_model(name)[0], file)
        return Case(file)
    batch = name.partition("-")[2] or "1"
    return Case(DIGITS, ("--size", f"batch={batch}"))
