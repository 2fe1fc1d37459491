"""Sequences and optionals of a call ↔ the tensors that compiled code takes and gives.

In: a call's arguments, where a sequence is a list of arrays and an absent optional is None. Out:
one array for each input port of the package; and back again for the results. Used by executable.py,
for packages with bundles.

    sequence    (data T[total], shapes i64[count, rank]): the elements one after the other
    mixed       the same; the shape of an element of lower rank begins with -1 for missing axes
    optional    (present bool[], …): an absent one has content that is never read
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.arrays import from_dlpack
from ingot.runtime.package import Bundle, Package, Port
from ingot.support.errors import IngotError

ABSENT = -1  # an axis that an element of a mixed sequence does not have


class Bundles:
    """How the arguments and results of one package are packed. `kept` are ports that a State has
    and no call gives or takes."""

    def __init__(self, package: Package, kept: Collection[str]):
        self._lows = {s.name: s.low for s in package.symbols}
        self._in_ports = [port for port in package.inputs if port.name not in kept]
        self._out_ports = [port for port in package.outputs if port.name not in kept]
        bundles = {b.values[0]: b for b in package.bundles}
        self._ins = list(_grouped(self._in_ports, bundles))
        self._outs = list(_grouped(self._out_ports, bundles))
        self.inputs = tuple(_port(bundle, ports) for bundle, ports in self._ins)
        self.outputs = tuple(_port(bundle, ports) for bundle, ports in self._outs)

    @property
    def optional(self) -> list[str]:
        """The inputs that a call may leave out."""
        return [bundle.name for bundle, _ in self._ins if bundle and bundle.kinds[0] == "optional"]

    def packed(self, given: Sequence[Any]) -> list[Any]:
        """One array for each port, of one argument for each of `inputs`."""
        arrays: list[Any] = []
        for value, (bundle, ports) in zip(given, self._ins):
            arrays += [value] if bundle is None else _packed(value, bundle, ports)
        if any(array is None for array in arrays):
            self._fill(arrays)
        return arrays

    def _fill(self, arrays: list[Any]) -> None:
        """Content for absent optional tensors: sizes as other inputs have them, or the least."""
        sizes = dict(self._lows)
        for array, port in zip(arrays, self._in_ports):
            for dim, size in zip(port.shape, getattr(array, "shape", ())):
                found = arith.solve_var(dim, size)
                sizes |= {} if found is None else {found[0]: found[1]}
        for i, port in enumerate(self._in_ports):
            if arrays[i] is None:
                shape = tuple(arith.evaluate(dim, sizes) for dim in port.shape)
                arrays[i] = np.zeros(shape, dtypes.of(port.dtype).numpy)

    def unpacked(self, results: Sequence[Any]) -> list[Any]:
        """One result for each of `outputs`, of one array for each port."""
        rest = iter(results)
        return [_unpacked(bundle, [next(rest) for _ in ports]) for bundle, ports in self._outs]


def _grouped(
    ports: Sequence[Port], bundles: dict[str, Bundle]
) -> Iterator[tuple[Bundle | None, list[Port]]]:
    """Ports in order, those of one bundle together; a port outside of bundles alone."""
    rest = iter(ports)
    for port in rest:
        bundle = bundles.get(port.name)
        others = () if bundle is None else bundle.values[1:]
        yield bundle, [port, *(next(rest) for _ in others)]


def _port(bundle: Bundle | None, ports: Sequence[Port]) -> Port:
    """What a call sees of a bundle: its name, and the type of its elements."""
    if bundle is None:
        return ports[0]
    holder = ports[1 if bundle.kinds[0] == "optional" and len(ports) > 1 else 0]
    shape = holder.shape if bundle.kinds[-1] == "tensor" else ()
    return Port(
        bundle.name, holder.dtype, shape, holder.storage, holder.device, " ".join(bundle.kinds)
    )


def _packed(value: Any, bundle: Bundle, ports: Sequence[Port]) -> list[Any]:
    if bundle.kinds[0] != "optional":
        return _packed_sequence(value, bundle, ports)
    is_present = np.array(value is not None)
    if len(ports) == 1:
        return [is_present]
    if bundle.kinds[-1] == "tensor":
        return [is_present, value]
    return [is_present, *_packed_sequence([] if value is None else value, bundle, ports[1:])]


def _packed_sequence(value: Any, bundle: Bundle, ports: Sequence[Port]) -> list[np.ndarray]:
    if not isinstance(value, list | tuple):
        what = f"input {bundle.name!r} is a {type(value).__name__}"
        raise IngotError("bad-input", what, hint="it is a sequence: give a list of arrays")
    rank = arith.as_int(ports[1].shape[1])
    assert rank is not None
    arrays = [_element(x, f"{bundle.name}[{i}]", ports[0]) for i, x in enumerate(value)]
    shapes = np.full((len(arrays), rank), ABSENT, np.int64)
    for i, array in enumerate(arrays):
        is_mixed = bundle.kinds[-1].startswith("mixed")
        if array.ndim > rank or (array.ndim < rank and not is_mixed):
            what = f"input '{bundle.name}[{i}]' has {array.ndim} axes"
            wanted = f"at most {rank}" if is_mixed else str(rank)
            raise IngotError("bad-input", what, hint=f"the elements have {wanted}")
        shapes[i, rank - array.ndim :] = array.shape
    flat = [array.reshape(-1) for array in arrays]
    is_text = ports[0].dtype == "str"
    none = np.empty(0, object if is_text else dtypes.of(ports[0].dtype).numpy)
    return [np.concatenate(flat) if flat else none, shapes]


def _element(value: Any, name: str, port: Port) -> np.ndarray:
    wanted = dtypes.of(port.dtype).numpy
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        value = from_dlpack(value, f"input {name!r}")
    array = np.asarray(value)
    if port.dtype == "str" or array.dtype == wanted:
        return array
    if not isinstance(value, np.ndarray | np.generic):  # Python numbers and lists of them
        try:
            return array.astype(wanted, casting="same_kind" if array.size else "unsafe")
        except TypeError:
            pass
    what = f"input {name!r} has dtype {array.dtype}, expected {wanted}"
    raise IngotError("bad-input", what, hint=f"pass it as .astype({str(wanted)!r})")


def _unpacked(bundle: Bundle | None, arrays: list[Any]) -> Any:
    if bundle is None:
        return arrays[0]
    if bundle.kinds[0] == "optional":
        if not bool(arrays[0]) or len(arrays) == 1:
            return None
        arrays = arrays[1:]
    return arrays[0] if bundle.kinds[-1] == "tensor" else _elements(*arrays)


def _elements(data: np.ndarray, shapes: np.ndarray) -> list[np.ndarray]:
    found, start = [], 0
    for row in shapes.tolist():
        shape = tuple(size for size in row if size != ABSENT)
        stop = start + int(np.prod(shape, dtype=np.int64))
        found.append(data[start:stop].reshape(shape))
        start = stop
    return found
