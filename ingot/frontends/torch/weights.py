"""Weights of a compiled module: has one changed since they were compiled?

In: an FxModel. Called, by name, by api.py. A tensor counts as changed if its version has (any
in-place operation), its memory has (`.data = …`), or the module has another tensor in its place
(load_state_dict with assign=True). A tensor made under inference_mode has no version, and an
operation on `.data` leaves it as it is: then the caller says so, exe.refresh().
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ingot.frontends.torch.model import FxModel, Placeholder
from ingot.support.errors import IngotError

Table = Mapping[str, Any]  # of a module: its parameters or buffers by name
Row = tuple[Table, str, torch.Tensor, int, int]  # … version (-1: it does not matter), address


class ModuleWeights:
    def __init__(self, model: FxModel):
        self._model, self._free = model, frozenset[str]()
        self._places = [_place(model.owner, p) for p in model.placeholders if p.tensor is not None]
        self._ties = _ties(model.owner, self._places)
        self._kinds = {
            p.target: _kind(p.tensor) for p in model.placeholders if p.tensor is not None
        }
        self.take()

    def take(self) -> None:
        """What the tensors are now is what is compiled, or about to be."""
        self._is_stale = False
        given = [p for p in self._model.placeholders if p.tensor is not None]
        self._taken: list[tuple[str, Row]] = []
        self._states: list[Row] = []
        for about, (table, key) in zip(given, self._places):
            tensor = table[key]
            row = (table, key, tensor, version_of(tensor), tensor.data_ptr())
            if about.kind == "state":
                self._states.append(row)
            else:
                self._taken.append((about.name, row))
        self.free(self._free)

    def free(self, names: frozenset[str]) -> None:
        """Placeholders of tensors that the compiled code reads where they are, in each call."""
        self._free = names
        self._rows = [
            (table, key, tensor, -1 if name in names else version, address)
            for name, (table, key, tensor, version, address) in self._taken
        ]

    def forget(self) -> None:
        """What was taken could not be compiled: the next call tries again."""
        self._is_stale = True

    def changed(self) -> bool:
        """A constant of the compiled code has changed."""
        if self._is_stale:
            return True
        for table, key, tensor, version, address in self._rows:
            if table[key] is not tensor or tensor.data_ptr() != address:
                return True
            if version >= 0 and tensor._version != version:
                return True
        return any(a[key] is not b[other] for (a, key), (b, other) in self._ties)

    def moved(self) -> bool:
        """A buffer that calls update has other memory."""
        return any(
            table[key] is not tensor or tensor.data_ptr() != address
            for table, key, tensor, _, address in self._states
        )

    def buffers(self) -> dict[str, torch.Tensor]:
        """The buffers that calls update, by name."""
        found = [p for p in self._model.placeholders if p.kind == "state"]
        return {p.target: table[key] for p, (table, key, *_) in zip(found, self._states)}

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors of the module that the model uses, by placeholder."""
        given = [p for p in self._model.placeholders if p.tensor is not None]
        return {p.name: table[key] for p, (table, key) in zip(given, self._places)}

    def model(self) -> FxModel:
        """The model with the tensors that the module has now."""
        self._check_ties()
        places = iter(self._places)
        made = []
        for p in self._model.placeholders:
            if p.tensor is None:
                made.append(p)
                continue
            table, key = next(places)
            found = table[key]
            _check_kind(p.target, found, self._kinds[p.target])
            made.append(replace(p, tensor=found))
        return replace(self._model, placeholders=tuple(made))

    def _check_ties(self) -> None:
        for (table, key), (other, name) in self._ties:
            if table[key] is not other[name]:
                what = f"the parameters {key!r} and {name!r} were one tensor, and are two now"
                raise IngotError("bad-model", what, hint="compile the module again")


def version_of(tensor: torch.Tensor) -> int:
    """-1 for a tensor that has none."""
    return -1 if tensor.is_inference() else tensor._version


Kind = tuple[torch.dtype, tuple[int, ...], torch.device]


def _kind(tensor: torch.Tensor) -> Kind:
    return tensor.dtype, tuple(tensor.shape), tensor.device


def _check_kind(name: str, found: Any, wanted: Kind) -> None:
    """An error for a tensor that the compiled code cannot use."""
    if not isinstance(found, torch.Tensor):
        what = f"the module has no tensor {name!r} any more"
        raise IngotError("bad-model", what, hint="compile the module again")
    if _kind(found) != wanted:
        was, now = (f"{k} {list(shape)} on {device}" for k, shape, device in (wanted, _kind(found)))
        what = f"{name!r} is {now} now; the module was compiled with {was}"
        raise IngotError("bad-model", what, hint="compile the module again")


Place = tuple[Table, str]


def _ties(owner: torch.nn.Module | None, places: Sequence[Place]) -> list[tuple[Place, Place]]:
    """Places of a module that have the tensor of one of `places`, with the latter: torch.export has
    one placeholder for all."""
    if owner is None:
        return []
    known = {id(table[key]): (table, key) for table, key in places}
    tables: list[Table] = [t for m in owner.modules() for t in (m._parameters, m._buffers)]
    pairs = [((t, key), known.get(id(tensor))) for t in tables for key, tensor in t.items()]
    return [(a, b) for a, b in pairs if b is not None and (a[0] is not b[0] or a[1] != b[1])]


def _place(owner: torch.nn.Module | None, about: Placeholder) -> tuple[Table, str]:
    """The table of a module that holds the tensor."""
    path, _, key = about.target.rpartition(".")
    try:
        module = owner.get_submodule(path) if owner is not None else None
    except AttributeError:
        module = None
    for table in (module._parameters, module._buffers, vars(module)) if module is not None else ():
        if isinstance(table.get(key), torch.Tensor):
            return table, key
    return {key: about.tensor}, key
