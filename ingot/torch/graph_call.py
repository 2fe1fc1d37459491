"""Calls of one compiled graph of torch.compile. In: a list of arguments, as AOTAutograd passes them.
Out: the graph's results: tensors, numbers, None.

Tensors go in and come out over the same memory. What a run updates is the caller's tensor; where its
memory is not laid out as when it was compiled, a copy is updated and copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ingot.frontends.torch.model import FxModel, Order
from ingot.frontends.torch.tensors import argument, random_key, to_tensor
from ingot.runtime.executable import Executable
from ingot.support.abi import RANDOM_KEY


class GraphCall:
    _boxed_call = True

    def __init__(self, model: FxModel, exe: Executable):
        self.exe, self._run = exe, exe._run
        names = [port.name for port in exe.package.inputs]
        outputs = [port.name for port in exe.package.outputs]
        position = {p.name: i for i, p in enumerate(model.placeholders)}
        updated = {output.updates for output in model.outputs}
        self._has_key = RANDOM_KEY in names
        given = [name for name in names if name != RANDOM_KEY]
        self._takes = [
            (position[name], name, model.placeholders[position[name]].order, name in updated)
            for name in given
        ]
        results = zip(model.outputs, model.results)
        self._gives = [
            _give(about, result, outputs, position)
            for about, result in results
            if about.kind != "update"
        ]

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        arrays, copies = [], []
        for place, name, order, is_updated in self._takes:
            given = args[place]
            if not isinstance(given, torch.Tensor):
                arrays.append(_number(given))
                continue
            if given.is_complex():
                given = torch.view_as_real(given.resolve_conj())
            array = argument(given, name)
            if order is not None:
                array = array.transpose(order)
            if is_updated and not array.flags.carray:
                array = np.array(array, order="C")
                copies.append((given, order, array))
            arrays.append(array)
        if self._has_key:
            arrays.append(random_key())
        results = self._run(arrays, None)
        for given, order, array in copies:
            (given if order is None else given.permute(order)).copy_(to_tensor(array))
        found = [give(results, args) for give in self._gives]
        args.clear()
        return found


def _number(given: Any) -> np.ndarray:
    if isinstance(given, float):
        return np.array(given, np.float64)
    return np.array([given], np.int64)


def _give(about: Any, result: Any, outputs: list[str], position: dict[str, int]) -> Any:
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
