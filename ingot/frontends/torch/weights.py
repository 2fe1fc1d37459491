"""Weights of a compiled module: has one changed since they were compiled?

In: an FxModel. Called, by name, by api.py. A tensor counts as changed if its version has (any
in-place operation), its memory has (`.data = …`), or the module has another tensor in its place
(load_state_dict with assign=True). A tensor made under inference_mode has no version, and an
operation on `.data` leaves it as it is: then the caller says so, exe.refresh().
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ingot.frontends.torch.model import FxModel, Placeholder
from ingot.support.errors import IngotError

Table = Mapping[str, Any]  # of a module: its parameters or buffers by name
Row = tuple[Table, str, torch.Tensor, int, int]  # … version, address


class ModuleWeights:
    def __init__(self, model: FxModel):
        self._model = model
        self._places = [_place(model.owner, p) for p in model.placeholders if p.tensor is not None]
        self._kinds = {
            p.target: _kind(p.tensor) for p in model.placeholders if p.tensor is not None
        }
        self.take()

    def take(self) -> None:
        """What the tensors are now is what is compiled, or about to be."""
        self._is_stale = False
        given = [p for p in self._model.placeholders if p.tensor is not None]
        self._rows: list[Row] = []
        self._states: list[Row] = []
        for about, (table, key) in zip(given, self._places):
            tensor = table[key]
            row = (table, key, tensor, version_of(tensor), tensor.data_ptr())
            (self._states if about.kind == "state" else self._rows).append(row)

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
        return False

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
