"""The models of `make bench`, by name. In: a name, a batch, a folder. Out: the model's file, its
sizes, and its inputs in a file, for `ingot bench`.

`NAMES` are the digits example, the models of benchmarks/zoo, and some of them at other sizes;
`DEFAULT` is timed when no names are given. A name that ends in -8 is that model at batch 8, one
that ends in -dynamic has its sizes left dynamic. The zoo writes its files to the user's cache at
first use; a network that comes from torch is also written as a torch.export file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.zoo import TABLE, Entry, Sizes, path_of, torch_path_of

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
OTHER_SIZES: dict[str, tuple[str, Sizes]] = {"bert_base_32": ("bert_base", {"length": 32})}
NAMES = ("digits", *TABLE, *OTHER_SIZES)
DYNAMIC = "-dynamic"  # ends the name of a case
SINGLE = (
    "resnet50", "mobilenet_v2", "efficientnet_b0", "vgg16", "unet", "vit_b16", "bert_base",
    "bert_base_32", "gpt2", "gpt2_decode", "lstm_tagger", "tiny_mlp", "tiny_cnn",
)  # fmt: skip
BATCHES = ("resnet50-8", "mobilenet_v2-8", "efficientnet_b0-8", "tiny_mlp-8", "tiny_cnn-8")
WITH_DYNAMIC_SIZES = ("resnet50", "mobilenet_v2", "bert_base_32", "gpt2_decode", "lstm_tagger")
DEFAULT = (*SINGLE, *BATCHES, *(f"{name}{DYNAMIC}" for name in WITH_DYNAMIC_SIZES))
# torch.compile takes 20 to 60 s for a model and thread count, so that torch runs on some
WITH_TORCH = ("resnet50", "mobilenet_v2", "vit_b16", "bert_base", "gpt2_decode", "tiny_mlp")
FROM_TORCH = tuple(name for name in SINGLE if name not in OTHER_SIZES)  # all have a file for torch


@dataclass(frozen=True)
class Case:
    """`sizes`: by the file's dimension names, the values of dynamic ones too. `entry`: set if its
    torch.export file has them."""

    name: str
    file: Path
    feeds: Path
    sizes: Mapping[str, int] = field(default_factory=dict)
    entry: Entry | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Options of `ingot bench`."""
        dynamic = ("--dynamic",) if self.name.endswith(DYNAMIC) else ()
        return ("--feeds", str(self.feeds), *dynamic)

    def torch_file(self) -> Path | None:
        """The torch.export file; written if it does not exist."""
        return torch_path_of(self.entry) if self.entry else None


def is_known(name: str) -> bool:
    plain, batch = split(name)
    return plain in NAMES and (batch is None or has_batch(plain))


def has_batch(plain: str) -> bool:
    """Is the model's batch dynamic?"""
    return plain == "digits" or "batch" in TABLE[OTHER_SIZES.get(plain, (plain, {}))[0]].sizes[0]


def at_batches(names: Sequence[str], batches: Sequence[int]) -> list[str]:
    """Models with a dynamic batch at each batch size; the others once."""
    found = []
    for batch in batches:
        suffix = "" if batch == 1 else f"-{batch}"
        found += [f"{name}{suffix}" for name in names if batch == 1 or has_batch(split(name)[0])]
    return found


def split(name: str) -> tuple[str, int | None]:
    """The model's name and the batch at its end, if there is one."""
    name = name.removesuffix(DYNAMIC)
    plain, _, last = name.rpartition("-")
    return (plain, int(last)) if plain and last.isdigit() else (name, None)


def make(name: str, folder: Path) -> Case:
    """The model called `name`, with its inputs in `folder`; writes the files that do not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    plain, batch = split(name)
    file = folder / f"{name}.npz"
    more = {} if batch is None else {"batch": batch}
    if plain == "digits":
        image = np.random.default_rng(1).standard_normal((batch or 1, 1, 8, 8), np.float32)
        np.savez(file, image=image)
        return Case(name, DIGITS, file, {"batch": batch or 1})
    model, changed = OTHER_SIZES.get(plain, (plain, {}))
    entry = TABLE[model]
    sizes = {**entry.sizes[0], **changed, **more}
    np.savez(file, **entry.feeds(sizes))  # type: ignore[arg-type]
    # the sizes of the torch.export file, which are fixed
    is_first = sizes == dict(entry.sizes[0]) and not name.endswith(DYNAMIC)
    return Case(name, path_of(entry), file, entry.shapes(sizes), entry if is_first else None)
