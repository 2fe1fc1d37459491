"""The program interpreter, the reference for planning: arenas are byte arrays, kernels run in
loops/interp.

    outputs = run(program, store, {"x": array})      length=: rows in use of states that grow
                                                     observe=: gets each launch when it has run

A planned program uses its allocations, so a plan that overlaps two live buffers gives wrong
outputs here too. Threads are not modelled: barriers do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

import numpy as np

from ingot.arith import expr as arith
from ingot.arith.tape import definitions
from ingot.graph.store import ConstantStore
from ingot.loops import interp as loops_interp
from ingot.program import ir
from ingot.program.tables import CONSTANTS, walk
from ingot.runtime.host_calls import HostCall
from ingot.support.errors import IngotError

Observer = Callable[[ir.Launch, Mapping[str, np.ndarray]], None]  # with the buffers it was given
_MAX_ITERATIONS = 1_000_000  # heuristic: a longer loop is reported as endless


def run(
    program: ir.Program, store: ConstantStore, feeds: Mapping[str, np.ndarray], length: int = 0,
    observe: Observer | None = None,
) -> list[np.ndarray]:  # fmt: skip
    machine = _Machine(program, store, feeds, length)
    machine.observe = observe
    machine.stmt(program.body)
    return [machine.array(name).copy() for name in program.outputs]


class _Machine:
    def __init__(
        self, program: ir.Program, store: ConstantStore, feeds: Mapping[str, np.ndarray],
        length: int = 0,
    ):  # fmt: skip
        self.program, self.store = program, store
        self.buffers = program.buffer_map
        self.kernels = program.kernel_map
        self.symbols: dict[str, int] = {}
        self.owned: dict[str, np.ndarray] = {}
        self.arenas: dict[str, np.ndarray] = {}
        self.grown: dict[str, list[np.ndarray]] = {}
        self.assigned: dict[str, np.ndarray] = {}
        self.host: HostCall | None = None  # made by the first host step
        self.observe: Observer | None = None
        for name in program.inputs:
            self.bind_shape(self.buffers[name], feeds[name])
        if program.growth is not None:
            self.symbols[program.growth.rows] = length + self.size(program.growth.added)
        for name in program.inputs:
            self.check_shape(self.buffers[name], feeds[name])
            self.owned[name] = np.array(feeds[name], order="C")
        self.symbols = definitions(program.offsets).evaluate(self.symbols)
        for arena in program.arenas:
            if arith.free_vars(arena.size_bytes) <= self.symbols.keys():
                self.reserve(arena.name, arena.size_bytes)

    def bind_shape(self, buffer: ir.Buffer, array: np.ndarray) -> None:
        for dim, size in zip(buffer.shape, array.shape, strict=True):
            found = arith.solve_var(dim, size)
            if found is not None:
                self.symbols.setdefault(*found)

    def check_shape(self, buffer: ir.Buffer, array: np.ndarray) -> None:
        for dim, size in zip(buffer.shape, array.shape, strict=True):
            if self.size(dim) != size:
                raise IngotError("bad-input", f"{buffer.name!r}: {dim} is not {size}")

    def size(self, e: arith.Expr) -> int:
        return arith.evaluate(e, self.symbols)

    def reserve(self, arena: str, size: arith.Expr) -> None:
        self.arenas[arena] = np.full(self.size(size), 0xA5, np.uint8)

    def array(self, name: str) -> np.ndarray:
        """The buffer's memory, as an array of its declared shape."""
        b = self.buffers[name]
        shape = tuple(self.size(d) for d in b.shape)
        if name in self.assigned:
            return self.assigned[name].reshape(shape)
        if b.storage is ir.Storage.DYNAMIC:
            rows = self.grown.get(name, [])
            return (
                np.array(rows, b.dtype.numpy).reshape(shape)
                if rows
                else np.zeros(shape, b.dtype.numpy)
            )
        if b.constant is not None:
            return self.store.get(b.constant).reshape(shape)
        if b.allocation is not None and b.allocation.arena != CONSTANTS:
            start, size = self.size(b.allocation.offset), self.size(b.size_bytes)
            memory = self.arenas[b.allocation.arena][start : start + size]
            return memory.view(b.dtype.numpy).reshape(shape)
        if name not in self.owned or self.owned[name].shape != shape:
            self.owned[name] = np.zeros(shape, b.dtype.numpy)
        return self.owned[name]

    def scalar(self, name: str) -> int:
        return int(self.array(name).reshape(-1)[0])

    def stmt(self, s: ir.Stmt) -> None:
        match s:
            case ir.Seq(stmts=stmts) | ir.Par(branches=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.Launch():
                self.launch(s)
            case ir.Barrier():
                pass
            case ir.Copy(dst=dst, src=src):
                self.array(dst)[...] = self.array(src).reshape(self.array(dst).shape)
            case ir.If(flag=flag, then=then, orelse=orelse):
                self.stmt(then if self.scalar(flag) else orelse)
            case ir.IfSize(size=size, most=most, then=then, orelse=orelse):
                self.stmt(then if 1 <= self.size(size) <= most else orelse)
            case ir.Loop():
                self.loop(s)
            case ir.Bind(symbol=symbol, buffer=buffer, index=index):
                self.symbols[symbol] = int(self.array(buffer).reshape(-1)[index])
            case ir.Reserve(arena=arena, size_bytes=size):
                self.reserve(arena, size)
            case ir.Append(dst=dst, src=src):
                self.grown.setdefault(dst, []).append(self.array(src).copy())
            case ir.Assign(dst=dst, src=src):
                self.assigned[dst] = self.array(src).copy()
            case ir.Resize(buffer=name):
                b = self.buffers[name]
                shape = tuple(self.size(d) for d in b.shape)
                self.assigned[name] = np.zeros(shape, b.dtype.numpy)
            case ir.Swap(a=a, b=b):
                self.assigned[a], self.assigned[b] = self.assigned[b], self.assigned[a]
            case ir.HostStep():
                self.host_step(s)
            case _:
                assert_never(s)  # type: ignore[arg-type]

    def launch(self, s: ir.Launch) -> None:
        kernel = self.kernels[s.kernel]
        sizes = {size.name: self.size(e) for size, e in zip(kernel.sizes, s.sizes)}
        arrays = []
        for param, name in zip(kernel.params, s.args):
            shape = tuple(arith.evaluate(d, sizes) for d in param.shape)
            array = self.array(name).reshape(shape)
            arrays.append(array.view(np.int64) if self.buffers[name].dtype.is_string else array)
        try:
            loops_interp.run(kernel, arrays, sizes)
        except IngotError as error:
            if error.where or not s.origin:
                raise
            raise IngotError(error.code, error.what, where=s.origin, why=error.why) from error
        if self.observe is not None:
            self.observe(s, {name: self.array(name) for name in s.args})

    def host_step(self, s: ir.HostStep) -> None:
        inputs = [None if name is None else self.array(name) for name in s.args]
        results = [self.array(name) for name in s.results]
        if self.host is None:
            self.host = HostCall((), self.store.strings)
        try:
            self.host.do(s.name, dict(s.attrs), inputs, results, s.keeps, s.takes, s.sizes)
        except IngotError as error:
            raise IngotError(error.code, error.what, where=s.origin, why=error.why) from error

    def loop(self, s: ir.Loop) -> None:
        for inner in walk(s.body):
            if isinstance(inner, ir.Append):
                self.grown[inner.dst] = []
        iteration = 0
        while self.continues(s, iteration):
            self.array(s.counter)[...] = iteration
            self.stmt(s.body)
            iteration += 1
            if iteration > _MAX_ITERATIONS:
                raise IngotError("run-failed", "a loop did not end", where=s.counter)
        self.array(s.counter)[...] = iteration

    def continues(self, s: ir.Loop, iteration: int) -> bool:
        if s.trips is not None and iteration >= self.scalar(s.trips):
            return False
        return s.keep_going is None or bool(self.scalar(s.keep_going))
