"""The models of `make bench`, by name: the digits example, and everything in benchmarks/zoo.

In: a name and a folder. Out: the model's file, and what `ingot bench` is to be told about its
inputs. The zoo writes its files to the user's cache when they are first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.zoo import TABLE, path_of

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
NAMES = ("digits", "digits-64", *TABLE)


@dataclass(frozen=True)
class Case:
    file: Path
    options: tuple[str, ...] = ()


def make(name: str, folder: Path) -> Case:
    """The model called `name`, its inputs in `folder`; written if it is not there yet."""
    if name not in TABLE:
        batch = name.partition("-")[2] or "1"
        return Case(DIGITS, ("--size", f"batch={batch}"))
    entry = TABLE[name]
    folder.mkdir(parents=True, exist_ok=True)
    feeds = folder / f"{name}.npz"
    np.savez(feeds, **entry.feeds(entry.sizes[0]))  # type: ignore[arg-type]
    return Case(path_of(entry), ("--feeds", str(feeds)))
