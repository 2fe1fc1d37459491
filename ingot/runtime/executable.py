"""A compiled model, ready to call. In: a Package. Out: answers as numpy arrays.

    exe(x, y)   exe(x=x, y=y)   exe.run(["logits"], {"x": x})   exe.run(None, feeds, out={"y": y})

Calls may come from many Python threads at once: each takes a context of its own. Inputs are used
where they lie when they are C-contiguous and aligned; others are copied. One foreign call per run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime.arrays import address_of, as_array, check_out
from ingot.runtime.context import Context
from ingot.runtime.failure import run_error
from ingot.runtime.loader import LoadedObject
from ingot.runtime.package import Package, Port
from ingot.runtime.pool import pool, usable_cores
from ingot.runtime.services import services
from ingot.runtime.sizes import Sizes, solve
from ingot.support import knobs
from ingot.support.errors import IngotError

_PLANS_KEPT = 256


class Executable:
    """`threads` may be changed between calls; answers do not depend on it."""

    def __init__(self, package: Package, threads: int | None = None):
        self.package = package
        self.threads = _thread_count(threads)
        self._services = services(package.support_object)
        self._code = [LoadedObject(data) for data in package.kernel_objects]
        self._entry_code = LoadedObject(package.entry_object)
        self._entry = self._entry_code.address(package.entry_symbol)
        addresses = [code.address(package.kernel_symbol) for code in self._code]
        self._kernels = (ctypes.c_int64 * max(1, len(addresses)))(*addresses)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._entry)
        self._in_dtypes = [dtypes.of(port.dtype).numpy for port in package.inputs]
        self._in_names = {port.name: i for i, port in enumerate(package.inputs)}
        self._out_names = {port.name: i for i, port in enumerate(package.outputs)}
        self._out_dtypes = [dtypes.of(port.dtype).numpy for port in package.outputs]
        self._state_of = {new: self._in_names[old] for old, new in package.state}
        self._is_state = [p.name in dict(package.state) for p in package.inputs]
        self._plans: dict[tuple, Sizes] = {}
        self._idle: list[Context] = []

    # --- what people read ---------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Port, ...]:
        return self.package.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        return self.package.outputs

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes a run needs; a size that depends on the inputs is given as its formula."""
        figures: dict[str, Any] = {"weights": self.package.constants.nbytes}
        for arena in self.package.arenas:
            figures[f"arena {arena.name}"] = _number(arena.size_bytes)
        figures["scratch per thread"] = _number(self.package.scratch_bytes)
        return figures

    def memory_for(self, **symbols: int) -> dict[str, int]:
        """The same for given sizes: exe.memory_for(batch=1, seq=128)."""
        figures = {}
        for name, value in self.memory.items():
            missing = arith.free_vars(value) - symbols.keys()
            if missing:
                raise IngotError(
                    "bad-option",
                    f"{name} depends on {', '.join(sorted(missing))}",
                    hint="give every symbol: " + ", ".join(s.name for s in self.package.symbols),
                )
            figures[name] = arith.evaluate(value, symbols)
        return figures

    def report(self) -> str:
        """Each kernel: what it came from, how it is parallel and wide, and why not if it is not."""
        return "\n".join(str(row) for row in self.package.report)

    def __repr__(self) -> str:
        ins = ", ".join(map(str, self.inputs))
        outs = ", ".join(map(str, self.outputs))
        return f"<ingot.Executable {self.package.name}: ({ins}) → ({outs})>"

    # --- calling ------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> list[np.ndarray]:
        if named:
            if arrays:
                raise IngotError("bad-input", "give inputs either by position or by name, not both")
            return self.run(None, named, out)
        if len(arrays) != len(self.package.inputs):
            names = ", ".join(self._in_names)
            raise IngotError(
                "bad-input",
                f"{len(arrays)} inputs given, {len(self.package.inputs)} expected",
                hint=f"in this order: {names}",
            )
        return self._run(list(arrays), out)

    def run(
        self, outputs: Sequence[str] | None, feeds: Mapping[str, Any], out: Any = None
    ) -> list[np.ndarray]:
        """As ONNX Runtime's session: names of the outputs wanted (None: all), inputs by name."""
        try:
            arrays = [feeds[name] for name in self._in_names]
        except KeyError:
            raise self._names_error(feeds) from None
        if len(feeds) != len(arrays):
            raise self._names_error(feeds)
        results = self._run(arrays, out)
        if outputs is None:
            return results
        unknown = [name for name in outputs if name not in self._out_names]
        if unknown:
            raise IngotError(
                "bad-input",
                f"no output is called {', '.join(map(repr, unknown))}",
                hint="there are " + ", ".join(self._out_names),
            )
        return [results[self._out_names[name]] for name in outputs]

    def _names_error(self, feeds: Mapping[str, Any]) -> IngotError:
        missing = [repr(n) for n in self._in_names if n not in feeds]
        unknown = [repr(n) for n in feeds if n not in self._in_names]
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"no such input {', '.join(unknown)}"] if unknown else []
        names = ", ".join(map(str, self.package.inputs))
        return IngotError("bad-input", "; ".join(parts), hint=f"the inputs are {names}")

    def _run(self, given: list[Any], out: Any) -> list[np.ndarray]:
        package = self.package
        arrays = [
            a
            if type(a) is np.ndarray
            and a.dtype is self._in_dtypes[i]
            and a.flags.carray
            and not self._is_state[i]
            else as_array(a, package.inputs[i], self._in_dtypes[i], self._is_state[i])
            for i, a in enumerate(given)
        ]
        shapes = tuple(a.shape for a in arrays)
        sizes = self._plans.get(shapes) or self._solve(shapes)
        results = self._results(sizes, arrays, out)
        limit = package.max_threads
        team = self.threads if limit is None else min(self.threads, limit)
        workers = pool().lease(team - 1, self._services) if team > 1 else []
        try:
            return self._go(sizes, arrays, results, workers)
        finally:
            if workers:
                pool().give_back(workers)

    def _solve(self, shapes: tuple) -> Sizes:
        sizes = solve(self.package, shapes)
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        self._plans[shapes] = sizes
        return sizes

    def _results(self, sizes: Sizes, arrays: list[np.ndarray], out: Any) -> list[np.ndarray | None]:
        """The array each output is written to; None for one whose size the run decides."""
        chosen = self._chosen(out) if out is not None else {}
        results: list[np.ndarray | None] = []
        for i, port in enumerate(self.package.outputs):
            shape = sizes.outputs[i]
            if port.name in self._state_of:
                results.append(arrays[self._state_of[port.name]])
            elif i in chosen:
                results.append(check_out(chosen[i], port, shape, self._out_dtypes[i], arrays))
            elif port.place.kind == "slot":
                assert shape is not None
                results.append(np.empty(shape, self._out_dtypes[i]))
            else:
                results.append(None)
        return results

    def _chosen(self, out: Any) -> dict[int, Any]:
        if isinstance(out, np.ndarray):
            out = [out]
        if isinstance(out, Mapping):
            unknown = [repr(name) for name in out if name not in self._out_names]
            if unknown:
                raise IngotError("bad-input", f"out=: no such output {', '.join(unknown)}")
            return {self._out_names[name]: array for name, array in out.items()}
        if len(out) != len(self.package.outputs):
            raise IngotError(
                "bad-input", f"out= has {len(out)} arrays for {len(self.package.outputs)} outputs"
            )
        return {i: array for i, array in enumerate(out) if array is not None}

    def _go(
        self,
        sizes: Sizes,
        arrays: list[np.ndarray],
        results: list[np.ndarray | None],
        workers: list,
    ) -> list[np.ndarray]:
        package, team = self.package, 1 + len(workers)
        context = self._context(team)
        context.prepare(sizes, team, self._entry, [w.slot for w in workers])
        buffers = context.buffers
        for port, array in zip(package.inputs, arrays):
            buffers[port.place.number] = address_of(array)
        for port, result in zip(package.outputs, results):
            if result is not None and port.place.kind == "slot":
                buffers[port.place.number] = address_of(result)
        if workers:
            failed = self._services.gang_run(context.gang)
        else:
            failed = self._call(context.ctx[0])
        if failed:
            errors = context.errors(team)
            context.reset()
            self._idle.append(context)
            raise run_error(package, errors)
        finished = [
            self._fetch(context, port, i) if result is None else result
            for i, (port, result) in enumerate(zip(package.outputs, results))
        ]
        self._idle.append(context)
        return finished

    def _context(self, team: int) -> Context:
        while self._idle:
            try:
                context = self._idle.pop()
            except IndexError:  # another thread took the last one
                break
            if context.threads >= team:
                return context
        kernels = ctypes.addressof(self._kernels)
        return Context(self.package, self._services, kernels, max(team, self.threads))

    def _fetch(self, context: Context, port: Port, number: int) -> np.ndarray:
        """Copy out a result whose size became known while running."""
        names = (s.name for s in self.package.symbols)
        known = dict(zip(names, context.symbols()))
        shape = tuple(arith.evaluate(dim, known) for dim in port.shape)
        result = np.empty(shape, self._out_dtypes[number])
        if result.nbytes:
            if port.place.kind == "dynamic":
                source = context.dynamic(port.place.number)
            else:
                assert port.place.offset is not None
                source = context.arena(port.place.number)
                source += arith.evaluate(port.place.offset, known)
            ctypes.memmove(result.ctypes.data, source, result.nbytes)
        return result


def _number(size: arith.Expr) -> int | arith.Expr:
    number = arith.as_int(size)
    return size if number is None else number


def _thread_count(threads: int | None) -> int:
    count = threads if threads is not None else knobs.current().threads or usable_cores()
    if count < 1:
        raise IngotError("bad-option", f"threads={count}", hint="give 1 or more")
    return count
