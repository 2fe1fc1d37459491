"""A compiled model, ready to call. In: a Package. Out: the model's outputs as numpy arrays.

    exe(x, y)   exe(x=x, y=y)   exe.run(["logits"], {"x": x})   exe.run(None, feeds, out={"y": y})
    future = exe.submit(x); future.result()       with exe: …, or exe.close()
    exe(x, state=cache), with cache = exe.new_state(batch=1), if states have a capacity

It checks names, types and shapes, solves sizes and makes the outputs; the package's device
(device.py) runs the code. Many Python threads may call one executable at once. C-contiguous,
aligned inputs are used without a copy; others are copied. A torch tensor in gives tensors out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from os import PathLike
from typing import Any, NoReturn, Self

import numpy as np

from ingot import dtypes
from ingot.runtime import devices, memory, plan_file, report
from ingot.runtime.arrays import as_array, refuse_shared_state, refuse_state_as_input
from ingot.runtime.border import Border, OtherVersion, needs_border, shown_inputs
from ingot.runtime.bundles import Bundles
from ingot.runtime.device import Array, LoadedModule
from ingot.runtime.failure import Closed, closed, no_memory
from ingot.runtime.package import HOST, Package, Port
from ingot.runtime.ports import PortInfo
from ingot.runtime.profile import Profile, make_profile
from ingot.runtime.random_keys import RandomKeys
from ingot.runtime.results import Results
from ingot.runtime.sizes import Sizes, prepare, refuse_unknown, solve
from ingot.runtime.state import State
from ingot.runtime.submissions import Submissions
from ingot.runtime.tensors import as_tensors, has_tensor
from ingot.runtime.trace import Trace
from ingot.runtime.versions import Versions
from ingot.support import lazy
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError

_MAX_SOLVED_SHAPES = 256  # tuples of input shapes whose sizes are kept; heuristic


class Executable:
    """`threads` may change between calls; results do not depend on it. `times_s` is the compile
    time of each stage."""

    remake: Any = None  # if the model's weights may change: (package, model) → executable

    def __init__(
        self,
        package: Package,
        threads: int | None = None,
        times_s: Mapping[str, float] | None = None,
        versions: Versions | None = None,
    ):
        self.package = package
        self._versions = versions or Versions()
        self.times_s = dict(times_s or {})
        self._device = devices.find(package.device)
        self._loaded = self._device.load(package)
        self.threads = threads  # type: ignore[assignment]
        self._in_dtypes = [dtypes.of(port.dtype).numpy for port in package.inputs]
        self._is_state = [p.name in dict(package.state) for p in package.inputs]
        self._has_state = any(self._is_state)
        self._keeps_state = package.growth is not None  # in a State; else states are inputs
        # the last input of a model with random operators, which each call gets from here
        has_key = any(port.name == RANDOM_KEY for port in package.inputs)
        self._random_keys = RandomKeys() if has_key else None
        kept = {name for pair in package.state for name in pair} if self._keeps_state else set()
        self._bundles = Bundles(package, {*kept, RANDOM_KEY}) if package.bundles else None
        self._in_names = [port.name for port in self._input_ports()]
        # an input that is such an array is used as it is; one on a device is always looked at
        self._plain_dtypes = [
            dtype if port.device == HOST else None
            for port, dtype in zip(package.inputs, self._in_dtypes)
        ]
        prepare(package)
        self._results = Results(package)
        self._border = Border(package, self._results) if needs_border(package) else None
        self._solved: dict[tuple, Sizes] = {}  # by length of the state and shapes of the inputs
        self._submissions = Submissions()
        self._measured: tuple[Mapping[str, int], list[float]] = {}, []  # sizes, µs of each launch

    @property
    def threads(self) -> int:
        """Most threads of one call; a call takes the workers that are free."""
        return self._loaded.threads

    @threads.setter
    def threads(self, count: int | None) -> None:
        self._loaded.threads = self._device.default_threads if count is None else _checked(count)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """No copies and no pickles: the copy would free code and memory that the original uses."""
        raise IngotError(
            "bad-option",
            "an executable cannot be copied or pickled",
            why="it holds code and memory of this process",
            hint="share it between threads; use exe.save and ingot.load for other processes",
        )

    # --- introspection ------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[PortInfo, ...]:
        """What a call takes; states with a capacity are given as one, state=."""
        return tuple(map(PortInfo.of, self._input_ports()))

    @property
    def outputs(self) -> tuple[PortInfo, ...]:
        """What a call returns; of states with a capacity, state[name] has the rows."""
        return tuple(map(PortInfo.of, self._output_ports()))

    def get_inputs(self) -> list[PortInfo]:
        """`inputs`, as an ONNX Runtime session gives them."""
        return list(self.inputs)

    def get_outputs(self) -> list[PortInfo]:
        """`outputs`, as an ONNX Runtime session gives them."""
        return list(self.outputs)

    def _input_ports(self) -> tuple[Port, ...]:
        if self._bundles is not None:
            return self._bundles.inputs
        kept = dict(self.package.state) if self._keeps_state else {}
        hidden = {*kept, RANDOM_KEY}
        return tuple(port for port in shown_inputs(self.package) if port.name not in hidden)

    def _output_ports(self) -> tuple[Port, ...]:
        if self._bundles is not None:
            return self._bundles.outputs
        kept = set(dict(self.package.state).values()) if self._keeps_state else set()
        return tuple(port for port in self.package.outputs if port.name not in kept)

    def new_state(self, **sizes: int) -> State:
        """An empty state: zeroed arrays of the full capacity. `sizes` are the other dynamic
        dimensions of the states: exe.new_state(batch=1)."""
        return State(self.package, sizes)

    def seed(self, value: int) -> None:
        """Start the random operators without a seed of their own again: the calls after it give
        the numbers that they gave after the last `seed` of this value. Without a seed, they start
        anywhere. Of a model without random operators it changes nothing."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise IngotError("bad-option", f"seed({value!r})", hint="give an integer")
        if self._random_keys is not None:
            self._random_keys.seed(value)

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes that a run needs. A dynamic size is an expression over the dynamic dimensions; that
        of an arena may mention offsets in it, which memory_for knows."""
        return memory.memory(self.package)

    def memory_for(self, **symbols: int) -> dict[str, int]:
        """`memory` at given dynamic dimensions: exe.memory_for(batch=1, seq=128)."""
        return memory.memory_for(self.package, symbols)

    def report(self, **sizes: int) -> str:
        """One row per launch: origin, parallelism, vector lanes, and why it is serial or scalar;
        predicted time at the sizes given or last profiled, and the time measured then. The last
        line has the compile time by stage."""
        refuse_unknown(self.package, sizes)
        known, measured = self._measured
        rows = report.lines(
            self.package.report,
            self.package.machine_model,
            self.threads,
            {**known, **sizes},
            measured,
        )
        launches = self.package.report
        steps = [*report.in_float(launches), *report.refused_steps(launches)]
        times = report.compile_times(self.times_s)
        return "\n".join([*self.package.notes, report.table(rows), *steps, *times])

    @property
    def specialised(self) -> dict[str, str]:
        """Sizes with a build of their own → "waiting", "building", "ready", "failed: …" or
        "no room: …". Empty without ingot.compile(…, specialise=True)."""
        return {}

    def wait_for_builds(self, timeout_s: float | None = None) -> bool:
        """Wait until no build is under way in the background; False: not within that time."""
        return True

    def save(self, path: str | PathLike) -> None:
        """Write the compiled model to one file, which `ingot.load` reads without the compiler."""
        plan_file.save(os.fspath(path), self.package)

    def profile(
        self, feeds: Mapping[str, Any], runs: int = 20, state: State | None = None
    ) -> Profile:
        """Time of each launch, mean of `runs` runs. Needs ingot.compile(…, profile=True). Every run
        starts from the length of the state, which it has afterwards too."""
        loaded = self._counting()
        self._run_again(feeds, state)  # warm-up: reserves memory, wakes the workers
        loaded.start_counters()
        start = time.perf_counter()
        for _ in range(runs):
            self._run_again(feeds, state)
        self._device.synchronize()
        elapsed = time.perf_counter() - start
        counters = loaded.counters()
        numbers = [i for i, launch in enumerate(self.package.launches) if launch.is_kernel]
        profile = make_profile(self.package.report, numbers, counters, elapsed * 1e6, runs)
        self._measured = counters.sizes, [row.time_us for row in profile.rows]
        return profile

    def trace(self, feeds: Mapping[str, Any], calls: int = 3, state: State | None = None) -> Trace:
        """When each thread ran what, in each of so many calls: trace.save("trace.json") writes a
        file for ui.perfetto.dev. It needs profile=True; states are as for `profile`."""
        loaded = self._counting()
        self._run_again(feeds, state)  # warm-up
        events = loaded.trace(lambda: self._run_again(feeds, state), calls)
        numbers = [i for i, launch in enumerate(self.package.launches) if launch.is_kernel]
        rows = dict(zip(numbers, self.package.report))
        return Trace(self.package.name, rows, events)

    def _counting(self) -> LoadedModule:
        """The loaded module, if it was compiled with counters."""
        if not self._loaded.has_counters:
            what = "this executable has no counters"
            raise IngotError("bad-option", what, hint="compile it with profile=True")
        return self._loaded

    def _run_again(self, feeds: Mapping[str, Any], state: State | None) -> None:
        length = 0 if state is None else state.length
        self.run(None, feeds, state=state)
        if state is not None:
            state.grown(length)

    def __repr__(self) -> str:
        ins = ", ".join(map(str, self.inputs))
        outs = ", ".join(map(str, self.outputs))
        return f"<ingot.Executable {self.package.name}: ({ins}) → ({outs})>"

    def _repr_html_(self) -> str:
        return lazy.load("runtime.html").executable_html(self)

    def context(self) -> Executable:
        """The same code with its own memory and thread count, shared with no other caller."""
        own = object.__new__(Executable)
        own.__dict__.update(self.__dict__, **self._own())
        return own

    def _own(self) -> dict[str, Any]:
        """What a context does not share."""
        return {"_loaded": self._loaded.context(), "_submissions": Submissions()}

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return isinstance(self._loaded, Closed)

    def close(self) -> None:
        """Free code and memory, when submitted and running calls have ended; calls after it are an
        error. Otherwise they are freed with the executable. Closing twice does nothing."""
        self._submissions.wait()
        loaded, self._loaded = self._loaded, Closed()  # type: ignore[assignment]
        loaded.close()
        self._versions = Versions()

    def trim(self) -> int:
        """Free the arenas and scratch of ended calls, as after the last of a burst; the next call
        makes what it needs. Calls that run keep theirs. Returns the bytes."""
        return self._loaded.trim() + self._versions.trim()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- calling ------------------------------------------------------------------------------

    def __call__(
        self, /, *arrays: Any, out: Any = None, state: State | None = None, **named: Any
    ) -> list[Array]:
        if named:
            if arrays:
                raise IngotError(
                    "bad-input",
                    f"{len(arrays)} inputs given by position and {', '.join(named)} by name",
                    hint=f"all by position or all by name: {', '.join(self._in_names)}",
                )
            return self.run(None, named, out=out, state=state)
        if len(arrays) != len(self._in_names):
            names = ", ".join(self._in_names)
            raise IngotError(
                "bad-input",
                f"{len(arrays)} inputs given, {len(self._in_names)} expected",
                hint=f"in this order: {names}" if names else "",
            )
        if self._bundles is not None:
            return self._run_bundles(self._bundles, None, arrays, out, state)
        if state is not None or self._keeps_state:
            return self._run_state(arrays, out, state)
        return self._run(arrays if self._random_keys is None else self._with_key(arrays), out)

    def _with_key(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The arrays, and the key of random numbers of this call if the model needs one."""
        return arrays if self._random_keys is None else [*arrays, self._random_keys.next()]

    def submit(self, /, *args: Any, **named: Any) -> Future[Any]:
        """A call in the background, with the arguments of a call: its future has the result. As
        many run at once as there are cores; `close` waits for all."""
        if isinstance(self._loaded, Closed):
            raise closed()
        return self._submissions.submit(self._device.default_threads, self, *args, **named)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        *,
        out: Any = None,
        state: State | None = None,
    ) -> list[Array]:
        """As ONNX Runtime's `session.run`: names of outputs (None: all), inputs by name. A sequence
        is a list of arrays; an optional input may be None or left out. Of `run_options` nothing
        applies to Ingot: they are ignored."""
        outputs, feeds = output_names, input_feed
        if self._bundles is not None and isinstance(feeds, Mapping):
            feeds = {**dict.fromkeys(self._bundles.optional), **feeds}
        try:
            arrays = list(map(feeds.__getitem__, self._in_names))
        except (KeyError, TypeError, AttributeError, IndexError):
            raise self._names_error(feeds) from None
        if len(feeds) != len(arrays):
            other = self._versions.overriding(feeds, self._in_names)
            if other is not None:
                other.threads = self.threads
                return other.run(outputs, feeds, out=out, state=state)
            raise self._names_error(feeds)
        if self._bundles is not None:
            return self._run_bundles(self._bundles, outputs, arrays, out, state)
        positions = self._results.positions(outputs) if outputs else []
        if state is not None or self._keeps_state:
            return self._run_state(arrays, out, state, positions)
        results = self._run(self._with_key(arrays), out)
        return [results[position] for position in positions] if outputs else results

    def _run_bundles(
        self, bundles: Bundles, names: Sequence[str] | None, given: Sequence[Any], out: Any,
        state: State | None,
    ) -> list[Any]:  # fmt: skip
        """A call with sequences or optionals among its arguments or results."""
        known = [port.name for port in bundles.outputs]
        unknown = [repr(name) for name in names or () if name not in known]
        if unknown:
            what = f"no output is called {', '.join(unknown)}"
            hint = "the outputs are " + ", ".join(map(str, bundles.outputs))
            raise IngotError("bad-input", what, hint=hint)
        if out is not None:
            what = "out= is given, but an input or output of the model is no tensor"
            raise IngotError("bad-input", what, hint="use the results that the call returns")
        arrays = bundles.packed(given)
        has_state = state is not None or self._keeps_state
        made = (
            self._run_state(arrays, None, state)
            if has_state
            else self._run(self._with_key(arrays), None)
        )
        results = bundles.unpacked(made)
        if has_tensor(given):
            results = as_tensors(results)
        return [results[known.index(name)] for name in names] if names else results

    def _names_error(self, feeds: Mapping[str, Any]) -> IngotError:
        hint = "the inputs are " + ", ".join(map(str, self.inputs))
        if not isinstance(feeds, Mapping):
            what = f"inputs are given as a dict by name, not as a {type(feeds).__name__}"
            return IngotError("bad-input", what, hint=hint)
        missing = [repr(n) for n in self._in_names if n not in feeds]
        unknown = [repr(n) for n in feeds if n not in self._in_names]
        wrong = [f"missing input {', '.join(missing)}"] if missing else []
        wrong += [f"no such input {', '.join(unknown)}"] if unknown else []
        return IngotError("bad-input", "; ".join(wrong), hint=hint)

    def run_with(self, arrays: Sequence[Any], threads: int | None) -> None:
        """Inputs by position and a thread count for this call only; outputs are states."""
        self._run(arrays, None, None if threads is None else _checked(threads))

    def _run_state(
        self, given: Sequence[Any], out: Any, state: Any, positions: Sequence[int] = ()
    ) -> list[Array]:
        """A call that updates a state: the outputs at these positions, or all that are no state."""
        self._check_state(state)
        rest = iter(self._with_key(given))
        ports = zip(self.package.inputs, self._is_state)
        with state.in_use():
            arrays = [state.arrays[p.name] if is_kept else next(rest) for p, is_kept in ports]
            results = self._run(arrays, out, state=state)
        return [results[i] for i in positions or self._results.returned or ()]

    def _check_state(self, state: Any) -> None:
        """An error unless the call and the executable both have a state, with the same arrays."""
        if not self._keeps_state:
            what = "state= is given, but this executable keeps no state"
            raise IngotError("bad-input", what, hint="compile with state= and capacity=")
        if not isinstance(state, State):
            what = "no state is given" if state is None else f"state= is a {type(state).__name__}"
            raise IngotError("bad-input", what, hint="give state=cache, from exe.new_state(…)")
        pairs = zip(self.package.inputs, self._in_dtypes, self._is_state)
        wanted = {port.name: dtype for port, dtype, is_kept in pairs if is_kept}
        found = {name: array.dtype for name, array in state.arrays.items()}
        if wanted != found:
            what = f"the state has {_listed(found)}, this executable {_listed(wanted)}"
            hint = "share a state only between versions of one model, compiled with one capacity"
            raise IngotError("bad-input", what, hint=hint)

    def _run(
        self,
        given: Sequence[Any],
        out: Any,
        threads: int | None = None,
        state: State | None = None,
    ) -> list[Array]:
        if self._border is None:
            return self._run_arrays(given, out, threads, state)
        try:
            return self._border.run(self._run_arrays, given, out, threads, state)
        except OtherVersion as other:  # it has numbers of its own for the strings
            return other.version._run(given, out, self.threads if threads is None else threads)

    def _run_arrays(
        self,
        given: Sequence[Any],
        out: Any,
        threads: int | None = None,
        state: State | None = None,
    ) -> list[Array]:
        try:
            if out is None and threads is None and state is None:
                outputs = self._loaded.repeat(given)
                if outputs is not None:
                    return outputs
            arrays = given
            for a, dtype in zip(given, self._plain_dtypes):
                if type(a) is not np.ndarray or a.dtype is not dtype or not a.flags.carray:
                    arrays = self._as_arrays(given)
                    break
            outputs = self._run_numpy(arrays, out, threads, state, arrays is given and out is None)
        except MemoryError as error:
            raise no_memory(str(error), f"model {self.package.name!r}") from error
        is_plain = arrays is given or not has_tensor(given)
        return outputs if is_plain else as_tensors(outputs, given, arrays)

    def _run_numpy(
        self,
        arrays: Sequence[Array],
        out: Any,
        threads: int | None,
        state: State | None,
        is_plain: bool,
    ) -> list[Array]:
        """A call with arrays that the code can read; `is_plain` as for LoadedModule.run."""
        if state is not None:
            refuse_state_as_input(self.package.inputs, arrays, self._is_state, state.memory)
        elif self._has_state:
            refuse_shared_state(self.package.inputs, arrays, self._is_state)
        shapes = tuple([a.shape for a in arrays])
        length = 0 if state is None else state.length
        try:
            sizes = self._solved.get((length, shapes)) or self._solve(length, shapes)
        except IngotError as error:
            other = self._versions.find(self.package, shapes, error)
            if self._border is not None:
                raise OtherVersion(other) from error
            return other._run(arrays, out, self.threads if threads is None else threads)
        results = self._results.arrays(sizes, arrays, out)
        if sizes.is_empty:
            return self._results.filled(results, sizes)
        outputs = self._loaded.run(sizes, arrays, results, threads, is_plain)
        if state is not None:
            state.grown(sizes.length)
        return outputs

    def _as_arrays(self, given: Sequence[Any]) -> list[Array]:
        rows = zip(given, self.package.inputs, self._in_dtypes, self._is_state)
        return [as_array(*row) for row in rows]

    def _solve(self, length: int, shapes: tuple) -> Sizes:
        sizes = solve(self.package, shapes, length)
        if len(self._solved) >= _MAX_SOLVED_SHAPES:
            self._solved.clear()
        self._solved[length, shapes] = sizes
        return sizes


def _checked(threads: int) -> int:
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise IngotError("bad-option", f"threads={threads!r}", hint="give an integer of at least 1")
    return threads


def _listed(types: Mapping[str, np.dtype]) -> str:
    return ", ".join(f"{name}: {dtype}" for name, dtype in types.items())
