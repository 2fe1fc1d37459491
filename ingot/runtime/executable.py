"""A compiled model, ready to call. In: a Package. Out: answers as numpy arrays.

    exe(x, y)   exe(x=x, y=y)   exe.run(["logits"], {"x": x})   exe.run(None, feeds, out={"y": y})

Calls may come from many Python threads at once: each takes a context of its own. Inputs are used
where they lie when they are C-contiguous and aligned; others are copied. One foreign call per run.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, NoReturn

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.runtime import plan_file, report
from ingot.runtime.arrays import address_of, as_array, refuse_shared_state
from ingot.runtime.context import Context
from ingot.runtime.door import Door, can_be_made
from ingot.runtime.failure import no_memory, run_error
from ingot.runtime.loader import LoadedObject
from ingot.runtime.package import Package, Port
from ingot.runtime.peak import measure
from ingot.runtime.pool import Pool, pool, usable_cores
from ingot.runtime.profile import Profile, make_profile
from ingot.runtime.results import Results
from ingot.runtime.services import services
from ingot.runtime.sizes import Sizes, refuse_unknown, solve
from ingot.support import knobs
from ingot.support.errors import IngotError

_PLANS_KEPT = 256


class Executable:
    """`threads` may be changed between calls; answers do not depend on it. `times_s` says where
    the time went that it took to get here, stage by stage."""

    def __init__(
        self,
        package: Package,
        threads: int | None = None,
        times_s: Mapping[str, float] | None = None,
    ):
        self.package = package
        self.times_s = dict(times_s or {})
        self._idle: list[Context] = []
        self._doors: list[Door] = []  # one, mostly; whoever takes it out has it alone
        self.threads = threads  # type: ignore[assignment]
        self._services = services(package.support_object)
        self._code = [LoadedObject(data) for data in package.kernel_objects]
        self._entry_code = LoadedObject(package.entry_object)
        self._entry = self._entry_code.address(package.entry_symbol)
        addresses = [code.address(package.kernel_symbol) for code in self._code]
        self._kernels = (ctypes.c_int64 * len(addresses))(*addresses)
        self._in_dtypes = [dtypes.of(port.dtype).numpy for port in package.inputs]
        self._in_names = {port.name: i for i, port in enumerate(package.inputs)}
        self._is_state = [p.name in dict(package.state) for p in package.inputs]
        self._has_state = any(self._is_state)
        self._results = Results(package)
        self._slots = [port.place.number for port in (*package.inputs, *package.outputs)]
        self._plans: dict[tuple, Sizes] = {}
        self._last: Sizes | None = None
        self._may_have_door = (
            knobs.current().native_calls
            and self._results.is_plain
            and not self._has_state
            and not package.is_profiled
            and can_be_made()
        )
        self._measured: tuple[dict[str, int], list[float]] = {}, []  # sizes, µs of each launch

    @property
    def threads(self) -> int:
        """Of a call, at most: it takes those that are free."""
        return self._threads

    @threads.setter
    def threads(self, count: int | None) -> None:
        if count is None:
            count = knobs.current().threads or usable_cores()
        self._threads = _checked(count)
        old, self._doors = self._doors, []  # a door that is out now comes back to the old list
        while old:
            with suppress(IndexError):  # another thread was faster
                self._idle.append(old.pop().context)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """No copies and no pickles: half of one would free what the other runs."""
        raise IngotError(
            "bad-option",
            "an executable cannot be copied or pickled",
            why="it holds code and memory of this process",
            hint="share it between threads as it is; exe.save(file) and ingot.load(file) elsewhere",
        )

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
        refuse_unknown(self.package, symbols)
        missing = {v for value in self.memory.values() for v in arith.free_vars(value)}
        missing -= symbols.keys()
        if missing:
            hint = f"exe.memory_for({', '.join(f'{s.name}=…' for s in self.package.symbols)})"
            what = f"memory_for: it depends on {', '.join(sorted(missing))}"
            raise IngotError("bad-option", what, hint=hint)
        for s in self.package.symbols:
            value, top = symbols.get(s.name, s.low), "…" if s.high is None else s.high
            if value < s.low or (s.high is not None and value > s.high):
                what = f"memory_for: {s.name!r} is {value}, outside {s.low} to {top}"
                raise IngotError("bad-option", what)
        return {name: arith.evaluate(value, symbols) for name, value in self.memory.items()}

    def report(self, **sizes: int) -> str:
        """Each kernel: what it came from, how it is parallel and wide, and why not if it is not;
        how long it should take, at the sizes given or last profiled, and took in that profile."""
        refuse_unknown(self.package, sizes)
        known, measured = self._measured
        rows = report.lines(
            self.package.report, self.package.pace, self.threads, known | sizes, measured
        )
        return "\n".join([*self.package.notes, report.table(rows)])

    def save(self, path: str | PathLike) -> None:
        """Write the compiled model to one file, which `ingot.load` reads without the compiler."""
        plan_file.save(os.fspath(path), self.package)

    def profile(self, feeds: Mapping[str, Any], runs: int = 20) -> Profile:
        """Where the time of a run goes, launch by launch. Needs ingot.compile(…, profile=True)."""
        if self.package.probe is None:
            what = "this executable has no cycle counters"
            raise IngotError("bad-option", what, hint="compile it with profile=True")
        self.run(None, feeds)  # memory is reserved, workers are awake
        context = self._idle[-1]
        context.take_counts()
        start, first = time.perf_counter(), self._services.cycles()
        for _ in range(runs):
            self.run(None, feeds)
        cycles, elapsed = self._services.cycles() - first, time.perf_counter() - start
        counts = context.take_counts()
        sizes = dict(zip((s.name for s in self.package.symbols), context.symbols()))
        profile = make_profile(
            self.package.report,
            measure(self.package.probe, len(counts)),
            [i for i, launch in enumerate(self.package.launches) if launch.is_kernel],
            counts,
            sizes,
            cycles,
            elapsed * 1e6,
            runs,
        )
        self._measured = sizes, [row.time_us for row in profile.rows]
        return profile

    def __repr__(self) -> str:
        ins = ", ".join(map(str, self.inputs))
        outs = ", ".join(map(str, self.outputs))
        return f"<ingot.Executable {self.package.name}: ({ins}) → ({outs})>"

    def context(self) -> Executable:
        """The same code with memory and a thread count of its own, for a caller who wants neither
        to share them nor to wait while another's grow."""
        own = object.__new__(Executable)
        own.__dict__.update(self.__dict__, _idle=[], _doors=[])
        return own

    # --- calling ------------------------------------------------------------------------------

    def __call__(self, /, *arrays: Any, out: Any = None, **named: Any) -> list[np.ndarray]:
        if named:
            if arrays:
                raise IngotError(
                    "bad-input",
                    f"{len(arrays)} inputs given by position and {', '.join(named)} by name",
                    hint=f"all by position or all by name: {', '.join(self._in_names)}",
                )
            return self.run(None, named, out)
        if len(arrays) != len(self.package.inputs):
            names = ", ".join(self._in_names)
            raise IngotError(
                "bad-input",
                f"{len(arrays)} inputs given, {len(self.package.inputs)} expected",
                hint=f"in this order: {names}" if names else "",
            )
        return self._run(arrays, out)

    def run(
        self, outputs: Sequence[str] | None, feeds: Mapping[str, Any], out: Any = None
    ) -> list[np.ndarray]:
        """As ONNX Runtime's session: names of the outputs wanted (none: all), inputs by name."""
        try:
            arrays = list(map(feeds.__getitem__, self._in_names))
        except (KeyError, TypeError, AttributeError, IndexError):
            raise self._names_error(feeds) from None
        if len(feeds) != len(arrays):
            raise self._names_error(feeds)
        if not outputs:
            return self._run(arrays, out)
        places = self._results.places(outputs)
        results = self._run(arrays, out)
        return [results[place] for place in places]

    def _names_error(self, feeds: Mapping[str, Any]) -> IngotError:
        hint = "the inputs are " + ", ".join(map(str, self.package.inputs))
        if not isinstance(feeds, Mapping):
            what = f"inputs are given as a dict by name, not as a {type(feeds).__name__}"
            return IngotError("bad-input", what, hint=hint)
        missing = [repr(n) for n in self._in_names if n not in feeds]
        unknown = [repr(n) for n in feeds if n not in self._in_names]
        parts = [f"missing input {', '.join(missing)}"] if missing else []
        parts += [f"no such input {', '.join(unknown)}"] if unknown else []
        return IngotError("bad-input", "; ".join(parts), hint=hint)

    def run_with(self, arrays: Sequence[Any], threads: int | None) -> None:
        """By position, on a thread count of this call's own; for programs that only fill states."""
        self._run(arrays, None, self._threads if threads is None else _checked(threads))

    def _run(self, given: Sequence[Any], out: Any, threads: int = 0) -> list[np.ndarray]:
        try:
            doors = self._doors  # before the threads: a setter in between leaves this list behind
            if doors and out is None and not threads:
                answer = self._by_door(doors, given)
                if answer is not None:
                    return answer
            arrays = given
            for a, dtype in zip(given, self._in_dtypes):
                if type(a) is not np.ndarray or a.dtype is not dtype or not a.flags.carray:
                    arrays = self._as_arrays(given)
                    break
            if self._has_state:
                refuse_shared_state(self.package.inputs, arrays, self._is_state)
            shapes = tuple([a.shape for a in arrays])
            sizes = self._plans.get(shapes) or self._solve(shapes)
            results = self._results.arrays(sizes, arrays, out)
            is_plain = arrays is given and out is None and not threads
            count = threads or self._threads
            return self._go(sizes, arrays, results, count, doors if is_plain else None)
        except MemoryError as error:
            raise no_memory(str(error), f"model {self.package.name!r}") from error

    def _by_door(self, doors: list[Door], given: Sequence[Any]) -> list[np.ndarray] | None:
        """The short way, for a call like the last one; None where it is not."""
        try:
            door = doors.pop()
        except IndexError:
            return None  # another thread has it
        answer = door.call(*given)
        if answer is None:
            self._idle.append(door.context)
            return None
        if answer.__class__ is not list:
            error = run_error(self.package, door.context.take_errors())
            doors.append(door)
            raise error
        doors.append(door)
        return answer

    def _as_arrays(self, given: Sequence[Any]) -> list[np.ndarray]:
        facts = zip(given, self.package.inputs, self._in_dtypes, self._is_state)
        return [as_array(*each) for each in facts]

    def _solve(self, shapes: tuple) -> Sizes:
        sizes = solve(self.package, shapes)
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        self._plans[shapes] = sizes
        return sizes

    def _go(
        self,
        sizes: Sizes,
        arrays: Sequence[np.ndarray],
        results: list[np.ndarray | None],
        threads: int,
        doors: list[Door] | None,
    ) -> list[np.ndarray]:
        """`doors`: where to put one, if calls of this kind may come in by it."""
        crew = pool()
        useful = sizes.useful_threads
        wanted = (threads if useful is None or threads < useful else useful) - 1
        if wanted > crew.limit:
            wanted = crew.limit
        if wanted > crew.count:
            crew.grow(wanted, self._services)
        context = self._context(wanted)
        context.prepare(sizes, crew.address, wanted)
        buffers = context.buffers
        for slot, array in zip(self._slots, (*arrays, *results)):
            if array is not None:
                buffers[slot] = address_of(array)
        failed = self._services.gang_run(context.gang)
        if wanted and context.team <= wanted:  # others have the workers: let there be more
            crew.grow(crew.count + wanted + 1 - context.team, self._services)
        if failed:
            error = run_error(self.package, context.take_errors())
            self._idle.append(context)
            raise error
        finished = self._results.finish(context, results)
        is_again, self._last = sizes is self._last, sizes
        if is_again and self._may_have_door and doors is not None and not doors:
            doors.append(self._door(crew, context, sizes, arrays))
        else:
            self._idle.append(context)
        return finished

    def _door(
        self, crew: Pool, context: Context, sizes: Sizes, arrays: Sequence[np.ndarray]
    ) -> Door:
        inputs = list(zip(self._slots, self._in_dtypes, [a.shape for a in arrays]))
        outputs = list(zip(self._slots[len(inputs) :], self._results.dtypes, sizes.outputs))
        return Door(self._services, crew, context, inputs, outputs)  # type: ignore[arg-type]

    def _at_rest(self) -> list[Context]:
        """All contexts that no call has, the door's last."""
        return [*self._idle, *(door.context for door in self._doors)]

    def _context(self, wanted: int) -> Context:
        """One at rest that has room for the threads, or a new one; small ones are dropped."""
        while True:
            try:
                context = self._idle.pop()
            except IndexError:
                break
            if context.threads > wanted:
                return context
        kernels = ctypes.addressof(self._kernels)
        return Context(self.package, self._services, kernels, self._entry, wanted + 1)


def _checked(threads: int) -> int:
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise IngotError("bad-option", f"threads={threads!r}", hint="give a number, 1 or more")
    return threads


def _number(size: arith.Expr) -> int | arith.Expr:
    number = arith.as_int(size)
    return size if number is None else number
