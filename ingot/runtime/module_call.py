"""A compiled PyTorch module: called as the module, with tensors or arrays in nested containers.

    exe(x, mask=m)      tensors in, tensors out, over the same memory where the layouts agree
    exe.run(None, {"x": array})                   the plain executable, with arrays by name

In: an Executable whose package has a signature (module_signature.py). Out: results nested as the
module's. torch is used only if a caller gives tensors or has imported it: without torch, arrays go
in and come out. Buffers that calls update are the module's own, if there is one, else copies of
what they were when it was compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_uint8
from functools import cache
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ingot.runtime.executable import Executable
from ingot.runtime.module_arguments import Nesting, check_fixed, has_torch
from ingot.runtime.module_signature import Leaf, ModuleSignature, Order, Result
from ingot.runtime.ports import PortInfo
from ingot.support import lazy
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError


class Weights(Protocol):
    """The module's weights (frontends/torch/weights.py)."""

    def take(self) -> None: ...

    def forget(self) -> None: ...

    def changed(self) -> bool: ...

    def moved(self) -> bool: ...

    def buffers(self) -> dict[str, Any]: ...

    def tensors(self) -> dict[str, Any]: ...

    def free(self, names: frozenset[str]) -> None: ...

    def model(self) -> Any: ...


Copies = list[tuple[np.ndarray, Any]]  # what a call has updated, and where it belongs


class ModuleExecutable(Executable):
    """Everything that an Executable has, and the call of the module. `fallback`: nodes that run in
    PyTorch, each with the reason; compiled with fallback=True, a module may have some."""

    fallback: Mapping[str, str] = {}

    def __init__(self, plain: Executable, weights: Weights | None = None, remake: Any = None):
        """`weights`: of the module, for an executable in its process; `remake` gives the executable
        for a package and the model with other weights."""
        self.signature = signature = ModuleSignature.of(plain.package.signature)
        self._weights, self.remake = weights, remake
        self._lock = Lock()
        self._nesting = Nesting(signature)
        self._adopt(plain)

    @property
    def inputs(self) -> tuple[PortInfo, ...]:
        """The arrays of the arguments, without the tensors of the module."""
        return tuple(port for port in self._plain.inputs if port.name not in self._held)

    @property
    def outputs(self) -> tuple[PortInfo, ...]:
        """The arrays of the results, without what is updated in place."""
        updated = {new for _, new in self.package.state}
        return tuple(port for port in self._plain.outputs if port.name not in updated)

    @property
    def specialised(self) -> dict[str, str]:
        return self._plain.specialised

    def wait_for_builds(self, timeout_s: float | None = None) -> bool:
        return self._plain.wait_for_builds(timeout_s)

    def _adopt(self, plain: Executable) -> None:
        self.__dict__.update(plain.__dict__)
        self._plain = plain
        names = [port.name for port in plain.package.inputs]
        outputs = [port.name for port in plain.package.outputs]
        self._takes = [(_index(names, leaf.port), leaf) for leaf in self.signature.leaves]
        self._gives = [(_index(outputs, r.output), r) for r in self.signature.results]
        self._count, self._has_key = len(names), RANDOM_KEY in names
        weights = self._weights
        self._held = _held(plain, self.signature, {} if weights is None else weights.buffers())
        tensors = {} if weights is None else weights.tensors()
        borrowed, own = _borrowed(plain, tensors)
        self._held |= borrowed
        if weights is not None:
            weights.free(own)

    def refresh(self) -> None:
        """Take over the module's weights as they are now. Calls do so by themselves after an
        in-place operation or load_state_dict; not after one on `.data`, or on tensors made under
        inference_mode, which leave no trace."""
        with self._lock:
            if self._weights is None:
                what = "this executable has no module whose weights could have changed"
                raise IngotError("bad-option", what, hint="compile the module in this process")
            self._weights.take()
            threads = self.threads
            try:
                self._adopt(self.remake(self.package, self._weights.model()))
            except BaseException:
                self._weights.forget()
                raise
            self._plain.threads = threads

    def _follow(self, weights: Weights) -> None:
        """Before a call: weights that changed, buffers that moved."""
        if weights.changed():
            self.refresh()
        elif weights.moved():
            weights.take()
            self._held |= _held(self._plain, self.signature, weights.buffers())

    def context(self) -> ModuleExecutable:
        own = object.__new__(ModuleExecutable)
        own.__dict__.update(self.__dict__, _lock=Lock())
        own._adopt(self._plain.context())
        return own

    def buffer(self, port: str) -> np.ndarray:
        """The memory of a tensor of the module, by the name of its input."""
        return self._held[port][1]

    def close(self) -> None:
        super().close()
        self._plain.close()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        *,
        out: Any = None,
        state: Any = None,
    ) -> list[Any]:
        """With arrays by name, as of any model; buffers of the module need not be given."""
        held = {name: array for name, (_, array) in self._held.items()}
        names = [port.name for port in self.outputs] if output_names is None else output_names
        return super().run(names, {**held, **input_feed}, out=out, state=state)

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if self._weights is not None:
            self._follow(self._weights)
        leaves = self._nesting.leaves(args, kwargs)
        arrays, copies = self._arrays(leaves)
        results = self._plain._run(arrays, None)
        for array, owner in copies:
            _copy_back(array, owner)
        return self._nested(leaves, results)

    def _arrays(self, leaves: Sequence[Any]) -> tuple[list[Any], Copies]:
        """What the code reads; and copies that it updates in place of what it cannot write to."""
        arrays: list[Any] = [None] * self._count
        copies: Copies = []
        for given, (place, leaf) in zip(leaves, self._takes):
            if leaf.kind != "tensor":
                if leaf.kind == "fixed":
                    check_fixed(given, leaf)
                elif place >= 0:
                    arrays[place] = _number(given, leaf)
                continue
            if leaf.is_complex:
                given = self._parts(given, leaf, place)
            array = _array(given, leaf)
            if leaf.order is not None:
                array = _permuted(array, leaf.order)
            if leaf.state and not array.flags.carray:
                _refuse_repeated(array, leaf.port)
                array = np.array(array, order="C")
                copies.append((array, _permuted(given, leaf.order)))
            if place >= 0:
                arrays[place] = array
        for place, array in self._held.values():
            arrays[place] = array
        if self._has_key:
            arrays[-1] = self._key()
        return arrays, copies

    def _parts(self, given: Any, leaf: Leaf, place: int) -> Any:
        """A complex argument as an array or tensor of its parts, over the same memory."""
        wanted = "complex64" if self.package.inputs[place].dtype == "f32" else "complex128"
        if str(getattr(given, "dtype", "")).removeprefix("torch.") != wanted:
            dtype = getattr(given, "dtype", type(given).__name__)
            what = f"input {leaf.port!r} is {dtype}, expected {wanted}"
            raise IngotError("bad-input", what, hint=f"give {leaf.port}.to(torch.{wanted})")
        if isinstance(given, np.ndarray):
            return _parts_of(given)
        if leaf.state and given.is_conj():
            what = f"input {leaf.port!r} is updated in place, and a conjugate view"
            raise IngotError("bad-input", what, hint=f"give {leaf.port}.resolve_conj()")
        return _tensors().parts(given, leaf.port)

    def _key(self) -> np.ndarray:
        """Of random numbers: drawn from torch's generator, where there is torch."""
        assert self._random_keys is not None
        if has_torch() and not self._random_keys.is_seeded:
            return _tensors().random_key()
        return self._random_keys.next()

    # --- results ----------------------------------------------------------------------------------

    def _nested(self, leaves: Sequence[Any], results: Sequence[Any]) -> Any:
        as_tensors = has_torch() and not any(type(x) is np.ndarray for x in leaves)
        found = [
            self._result(about, leaves, results[place] if about.output else None, as_tensors)
            for place, about in self._gives
        ]
        return self._nesting.nested(found, as_tensors)

    def _result(self, about: Result, leaves: Sequence[Any], array: Any, as_tensors: bool) -> Any:
        if about.kind == "fixed":
            return about.value
        if about.kind == "leaf":
            return leaves[about.leaf]
        if about.kind == "number":
            return array.item()
        if about.kind == "state":
            array = self.buffer(about.port)
        if as_tensors:
            array = _tensors().to_tensor(array)
        array = array if about.order is None else _permuted(array, _inverse(about.order))
        return _complex(array) if about.is_complex else array


def _held(
    plain: Executable, signature: ModuleSignature, buffers: Mapping[str, Any]
) -> dict[str, tuple[int, np.ndarray]]:
    """Of each buffer that calls update: the position of its input, and its memory."""
    names = [port.name for port in plain.package.inputs]
    initial = dict(plain.package.initial)
    found = {}
    for held in signature.held:
        array = None
        if held.target in buffers:
            array = _permuted(_tensors().to_array(buffers[held.target], held.target), held.order)
        if array is None or not array.flags.carray:
            array = np.array(initial[held.port], order="C")
        found[held.port] = names.index(held.port), array
    return found


def _borrowed(
    plain: Executable, tensors: Mapping[str, Any]
) -> tuple[dict[str, tuple[int, np.ndarray]], frozenset[str]]:
    """The same of tensors that the code reads where the module has them, or of their contents in a
    plan; and the names of those that may change without more."""
    names = [port.name for port in plain.package.inputs]
    initial = dict(plain.package.initial)
    found, own = dict[str, tuple[int, np.ndarray]](), set[str]()
    for port, name, is_free in plain.package.borrowed:
        array = _tensors().to_array(tensors[name], name) if name in tensors else initial[port]
        if not array.flags.c_contiguous:  # another module's, in the model cache
            array = np.array(array, order="C")
        elif is_free and name in tensors:
            own.add(name)
        found[port] = names.index(port), _writeable(array)
    return found, frozenset(own)


def _writeable(array: np.ndarray) -> np.ndarray:
    """The same memory without the flag, which calls would look at; the code only reads it."""
    if array.flags.writeable or not array.nbytes:
        return array
    memory = (c_uint8 * array.nbytes).from_address(array.ctypes.data)
    memory.owner = array  # type: ignore[attr-defined]
    return np.ctypeslib.as_array(memory).view(array.dtype).reshape(array.shape)


@cache
def _tensors() -> Any:
    return lazy.load("torch.tensors")


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _array(given: Any, leaf: Leaf) -> np.ndarray:
    """An argument as an array over the same memory."""
    if isinstance(given, np.ndarray):
        return given
    if has_torch():
        return _tensors().argument(given, leaf.port)
    what = f"input {leaf.port!r} is a {type(given).__name__}"
    raise IngotError("bad-input", what, hint="give a tensor or an array")


def _permuted(given: Any, order: Order | None) -> Any:
    if order is None:
        return given
    return given.transpose(order) if isinstance(given, np.ndarray) else given.permute(order)


def _inverse(order: Order) -> Order:
    return tuple(order.index(axis) for axis in range(len(order)))


def _parts_of(given: np.ndarray) -> np.ndarray:
    """A view of the real and imaginary parts, as the last axis."""
    parts, step = given.view(), given.itemsize // 2
    shape, strides = (*given.shape, 2), (*given.strides, step)
    is_writeable = given.flags.writeable
    return np.lib.stride_tricks.as_strided(parts.real, shape, strides, writeable=is_writeable)


def _complex(parts: Any) -> Any:
    """The reverse, of an array or a tensor."""
    if not isinstance(parts, np.ndarray):
        return _tensors().of_parts(parts)
    dense = np.ascontiguousarray(parts)
    return dense.view(np.complex64 if dense.itemsize == 4 else np.complex128)[..., 0]


def _number(given: Any, leaf: Leaf) -> np.ndarray:
    if isinstance(given, bool) or not isinstance(given, int | float):
        what = f"input {leaf.port!r} is a {type(given).__name__}, not a number"
        raise IngotError("bad-input", what)
    return np.array([given], np.int64) if isinstance(given, int) else np.array(given, np.float64)


def _refuse_repeated(array: np.ndarray, name: str) -> None:
    if any(step == 0 and size > 1 for step, size in zip(array.strides, array.shape)):
        what = f"input {name!r} is updated in place, and has elements that share memory"
        raise IngotError("bad-input", what, hint=f"give {name}.contiguous()")


def _copy_back(array: np.ndarray, owner: Any) -> None:
    if isinstance(owner, np.ndarray):
        owner[...] = array
    else:
        owner.copy_(_tensors().to_tensor(array))
