"""Argument binding of kernel calls. In: numpy arrays, tensors of other libraries (DLPack).
Out: one C-contiguous array per parameter, without a copy where possible; or an error that names the
parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import Buffer
from ingot.loops.signature import describe_range, is_allowed, signature, solve_sizes
from ingot.runtime.arrays import from_dlpack
from ingot.runtime.tensors import as_tensors, has_tensor
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class Arguments:
    """The arrays of all parameters in order, and those that the call returns."""

    arrays: list[np.ndarray]
    made: list[np.ndarray]
    sizes: dict[str, int]
    gives_torch: bool

    def result(self) -> Any:
        """None if the caller gave the outputs; else the allocated output, or a tuple of them."""
        made = as_tensors(self.made) if self.gives_torch else self.made
        return None if not made else made[0] if len(made) == 1 else tuple(made)


def bind(kernel: ir.Kernel, given: Sequence[Any]) -> Arguments:
    """Bind all parameters, or only those that are read: the others are allocated, as zeros."""
    roles = signature(kernel)
    if len(given) == len(kernel.params):
        params: tuple[Buffer, ...] = kernel.params
    elif len(given) == len(roles.inputs):
        params = roles.inputs
    else:
        raise _wrong_count(kernel, len(given))
    written = {p.name for p in roles.outputs}
    arrays = {
        p.name: _checked_array(kernel, p, x, p.name in written) for p, x in zip(params, given)
    }
    sizes = _sizes(kernel, tuple([(name, x.shape) for name, x in arrays.items()]))
    made = [p for p in kernel.params if p.name not in arrays]
    arrays |= {p.name: np.zeros(_shape(p, sizes), p.dtype.numpy) for p in made}
    _refuse_aliasing(kernel, arrays, written)
    return Arguments(
        [arrays[p.name] for p in kernel.params],
        [arrays[p.name] for p in made],
        sizes,
        has_tensor(given),
    )


def _bad(kernel: ir.Kernel, what: str, why: str = "", hint: str = "") -> IngotError:
    return IngotError("bad-input", what, where=f"kernel {kernel.name}", why=why, hint=hint)


def _typed(p: Buffer) -> str:
    return f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]"


def _wrong_count(kernel: ir.Kernel, count: int) -> IngotError:
    roles = signature(kernel)
    hint = "give " + ", ".join(_typed(p) for p in kernel.params)
    if roles.new_outputs:
        names = ", ".join(p.name for p in roles.new_outputs)
        hint += f"; or leave out {names}, which the call then allocates"
    return _bad(kernel, f"{count} arrays given for {len(kernel.params)} parameters", hint=hint)


# --- one array ------------------------------------------------------------------------------------


def _checked_array(kernel: ir.Kernel, p: Buffer, given: Any, is_written: bool) -> np.ndarray:
    array = _as_numpy(kernel, p, given, is_written)
    if array.dtype != p.dtype.numpy:
        what = f"parameter {_typed(p)} was given an array of {array.dtype}"
        hint = f"pass {p.name}.astype({str(p.dtype.numpy)!r})"
        raise _bad(kernel, what, hint=hint)
    if array.ndim != p.rank:
        what = f"parameter {_typed(p)} was given an array of shape {list(array.shape)}"
        raise _bad(kernel, what, why=f"it has {array.ndim} axes, not {p.rank}")
    if not is_written:
        usable = array.flags.c_contiguous and array.flags.aligned
        return array if usable else np.array(array, order="C")
    if not array.flags.carray:
        wrong = "not C-contiguous and aligned" if array.flags.writeable else "read-only"
        what = f"the array given for {p.name}, which the kernel writes, is {wrong}"
        raise _bad(kernel, what, hint="pass a new array, such as np.empty(…)")
    return array


def _as_numpy(kernel: ir.Kernel, p: Buffer, given: Any, is_written: bool) -> np.ndarray:
    if isinstance(given, np.ndarray):
        return given
    if hasattr(given, "__dlpack__"):
        try:
            return from_dlpack(given, f"parameter {_typed(p)}")
        except IngotError as error:
            raise _bad(kernel, error.what, error.why, error.hint) from error
    if isinstance(given, bool | int | float | np.generic) and not is_written:
        try:
            return np.asarray(given, p.dtype.numpy)
        except (OverflowError, ValueError) as error:
            what = f"parameter {_typed(p)} cannot be {given!r}"
            raise _bad(kernel, what, why=str(error)) from None
    what = f"parameter {_typed(p)} was given a {type(given).__name__}"
    raise _bad(kernel, what, hint="pass a numpy array, or anything with __dlpack__")


# --- sizes ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _sizes(kernel: ir.Kernel, given: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, int]:
    """The value of every size, after checking that all shapes agree; cached by shapes."""
    found = dict(given)
    shapes = {name: [arith.Const(n) for n in shape] for name, shape in given}
    solved = {name: arith.evaluate(e, {}) for name, e in solve_sizes(kernel, shapes).items()}
    for size in kernel.sizes:
        if size.name not in solved:
            what = f"size {size.name} does not follow from the shapes of the arrays"
            raise _bad(kernel, what, hint="give the outputs too")
    for p in kernel.params:
        if p.name in found:
            _check_shape(kernel, p, found[p.name], solved)
    for size in kernel.sizes:
        if not is_allowed(size, solved[size.name]):
            what = f"size {size.name} is {solved[size.name]}; it must be {describe_range(size)}"
            raise _bad(kernel, what)
    return solved


def _shape(p: Buffer, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(arith.evaluate(d, sizes) for d in p.shape)


def _check_shape(
    kernel: ir.Kernel, p: Buffer, shape: tuple[int, ...], sizes: dict[str, int]
) -> None:
    wanted = _shape(p, sizes)
    if shape == wanted:
        return
    mentioned = sorted({n for d in p.shape for n in arith.free_vars(d)})
    known = ", ".join(f"{name} = {sizes[name]}" for name in mentioned)
    what = f"parameter {_typed(p)} was given an array of shape {list(shape)}"
    why = f"it must be {list(wanted)}" + (f", where {known} by the arrays before it" * bool(known))
    raise _bad(kernel, what, why=why)


def _refuse_aliasing(kernel: ir.Kernel, arrays: dict[str, np.ndarray], written: set[str]) -> None:
    """An array that is written must not alias another argument."""
    for name in (p.name for p in kernel.params if p.name in written):
        for other, array in arrays.items():
            if other != name and np.may_share_memory(arrays[name], array):
                what = f"the arrays given for {name} and {other} share memory"
                hint = "to work in place, write a kernel that reads and writes one parameter"
                raise _bad(kernel, what, why=f"the kernel writes {name}", hint=hint)
