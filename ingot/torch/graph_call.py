"""Calls of one compiled graph of torch.compile. In: a list of arguments, as AOTAutograd gives it.
Out: the graph's results: tensors, numbers, None.

Tensors go in and come out over the same memory. What a run updates is the caller's tensor; where
its memory is not laid out as when it was compiled, a copy is updated and copied back. Parameters
are among the arguments: modules that share code share the graph, and each set of parameters has
constants of its own, made for the same kernels when it is first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
import torch

from ingot.frontends.torch.model import FxModel, Output
from ingot.frontends.torch.tensors import argument, random_key, to_array, to_tensor
from ingot.frontends.torch.weights import version_of
from ingot.runtime.executable import Executable
from ingot.runtime.module_signature import Order
from ingot.support.abi import RANDOM_KEY

MAX_SETS = 256  # of parameters that one graph keeps constants for; heuristic
Run = Callable[[list[np.ndarray], None], list[np.ndarray]]
# an input's position among the arguments, its name for the user, its memory order, does the run
# update it, is it a parameter
Take = tuple[int, str, Order | None, bool, bool]


class WeightSet:
    """The executable for some parameters, and what they were when it was made."""

    def __init__(self, model: FxModel, exe: Executable, tensors: Sequence[Any]):
        self.exe, self.run, self.tensors = exe, exe._run, tuple(tensors)
        self.takes = _takes(model, exe)
        weights = [p.name for p in model.placeholders if p.kind == "constant"]
        free = {name for _, name, is_free in exe.package.borrowed if is_free}  # read by each call
        self._watched = [
            (place, tensor, version_of(tensor), tensor.data_ptr())
            for place, (name, tensor) in enumerate(zip(weights, tensors))
            if name not in free
        ]

    def is_of(self, tensors: Sequence[Any]) -> bool:
        """Are these its parameters, unchanged?"""
        for place, own, version, address in self._watched:
            tensor = tensors[place]
            if tensor is not own or tensor.data_ptr() != address:
                return False
            if version >= 0 and tensor._version != version:
                return False
        return True


class GraphCall:
    _boxed_call = True

    def __init__(self, model: FxModel, exe: Executable):
        self._model, self._lock = model, Lock()
        names = [port.name for port in exe.package.inputs]
        outputs = [port.name for port in exe.package.outputs]
        position = {p.name: i for i, p in enumerate(model.placeholders)}
        self._has_key = RANDOM_KEY in names
        results = zip(model.outputs, model.results)
        self._gives = [
            _give(about, result, outputs, position)
            for about, result in results
            if about.kind != "update"
        ]
        self._weights = [i for i, p in enumerate(model.placeholders) if p.kind == "constant"]
        own = [
            p.tensor for p in model.placeholders if p.kind == "constant" and p.tensor is not None
        ]
        self._current = WeightSet(model, exe, own)
        self._sets = {tuple(map(id, own)): self._current}

    @property
    def exe(self) -> Executable:
        """That of the parameters of the last call."""
        return self._current.exe

    def refresh(self) -> None:
        """Take over weights that changed without a trace."""
        with self._lock:
            tensors = self._current.tensors
            self._current = self._made(tensors)
            self._sets = {tuple(map(id, tensors)): self._current}

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        weights = self._current
        if self._weights:
            tensors = [args[i] for i in self._weights]
            if not weights.is_of(tensors):
                weights = self._of(tensors)
        arrays, copies = self._arrays(args, weights.takes)
        results = weights.run(arrays, None)
        for target, updated in copies:
            target.copy_(updated)
        found = [give(results, args) for give in self._gives]
        args.clear()
        return found

    def _arrays(self, args: list[Any], takes: list[Take]) -> tuple[list[np.ndarray], list[tuple]]:
        """What the code reads; and what it updates in another place than the caller's."""
        arrays: list[np.ndarray] = []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        for place, name, order, is_updated, is_weight in takes:
            given = args[place]
            if is_weight:
                arrays.append(to_array(given, name))
                continue
            if not isinstance(given, torch.Tensor):
                arrays.append(_number(given))
                continue
            conjugate = None
            if given.is_complex():
                conjugate = given if given.is_conj() else None
                given = torch.view_as_real(given.resolve_conj())
            array = argument(given, name)
            if order is not None:
                array = array.transpose(order)
            if is_updated and not array.flags.carray:
                array = np.array(array, order="C")
                copies.append((_moved(given, order), to_tensor(array)))
            if is_updated and conjugate is not None:
                copies.append((conjugate, torch.view_as_complex(given)))
            arrays.append(array)
        if self._has_key:
            arrays.append(random_key())
        return arrays, copies

    def _of(self, tensors: Sequence[torch.Tensor]) -> WeightSet:
        """The set of these parameters, as they are now."""
        with self._lock:
            key = tuple(map(id, tensors))
            found = self._sets.get(key)
            if found is None or not found.is_of(tensors):
                found = self._sets[key] = self._made(tensors)
                while len(self._sets) > MAX_SETS:
                    del self._sets[next(iter(self._sets))]
            self._current = found
            return found

    def _made(self, tensors: Sequence[torch.Tensor]) -> WeightSet:
        given = dict(zip(self._weights, tensors))
        placeholders = tuple(
            replace(p, tensor=given[i]) if i in given else p
            for i, p in enumerate(self._model.placeholders)
        )
        old = self._current.exe
        made = old.remake(old.package, replace(self._model, placeholders=placeholders))
        made.remake, made.threads = old.remake, old.threads
        return WeightSet(self._model, made, tensors)


def _takes(model: FxModel, exe: Executable) -> list[Take]:
    """Of each input, in order."""
    position = {p.name: i for i, p in enumerate(model.placeholders)}
    updated = {output.updates for output in model.outputs}
    weights = {port: name for port, name, _ in exe.package.borrowed}
    found = []
    for port in exe.package.inputs:
        if port.name == RANDOM_KEY:
            continue
        place = position[weights.get(port.name, port.name)]
        about = model.placeholders[place]
        label, is_updated = about.target or about.name, port.name in updated
        found.append((place, label, about.order, is_updated, port.name in weights))
    return found


def _number(given: Any) -> np.ndarray:
    if isinstance(given, float):
        return np.array(given, np.float64)
    return np.array([given], np.int64)


def _give(about: Output, result: Any, outputs: list[str], position: dict[str, int]) -> Callable:
    """How a result is made of the outputs and the arguments."""
    if about.kind == "none":
        if not isinstance(result, torch.fx.Node):
            return lambda results, args: result
        place = position[result.name]
        return lambda results, args: args[place]
    index = outputs.index(about.name)
    if not isinstance(result.meta.get("val"), torch.Tensor):
        return lambda results, args: results[index].item()
    back = None if about.order is None else _inverse(about.order)
    if result.meta["val"].is_complex():
        return lambda results, args: torch.view_as_complex(_moved(to_tensor(results[index]), back))
    if back is None:
        return lambda results, args: to_tensor(results[index])
    return lambda results, args: to_tensor(results[index]).permute(back)


def _moved(given: torch.Tensor, back: Order | None) -> torch.Tensor:
    return given if back is None else given.permute(back)


def _inverse(order: Order) -> Order:
    return tuple(order.index(axis) for axis in range(len(order)))
