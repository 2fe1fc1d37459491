"""`ingot.compile` and `ingot.load`: the entry points. In: a model, options. Out: an Executable.

The compiler is imported only when something must be compiled, so that `import ingot` and a cache
hit stay fast.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from types import FunctionType, MethodType
from typing import Any

from ingot import backends, cache, frontends
from ingot.runtime import devices, plan_file, report
from ingot.runtime.executable import Executable
from ingot.runtime.module_call import ModuleExecutable
from ingot.runtime.package import Package
from ingot.runtime.specialise import Settings
from ingot.runtime.versions import Versions
from ingot.support import lazy, progress
from ingot.support.dump import Dump
from ingot.support.errors import IngotError
from ingot.support.limits import Limits
from ingot.support.options import Options, current, using

Shapes = Mapping[str, int | Sequence[int]]
Capacity = int | Mapping[str, int]

_TORCH = {
    ("torch.nn.modules.module", "Module"),
    ("torch.export.exported_program", "ExportedProgram"),
    ("ingot.frontends.torch.model", "FxModel"),
}


def compile(
    model: str | PathLike | bytes | Any,
    example_inputs: Any = None,
    threads: int | None = None,
    *,
    target: str = "cpu",
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    fallback: bool = False,
    shapes: Shapes | None = None,
    outputs: Sequence[str] | None = None,
    state: Mapping[str, str] | None = None,
    capacity: Capacity | None = None,
    kernels: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    profile: bool = False,
    dump: Dump | None = None,
    time_limit_s: float | None = None,
    memory_limit_bytes: int | None = None,
    specialise: bool | Mapping[str, int] = False,
    options: Options | Mapping[str, Any] | None = None,
) -> Executable:
    """Compile a model into one native function.

    model    an ONNX file, its bytes, an onnx.ModelProto, or an Ingot graph; a torch.nn.Module with
             example inputs, a torch.export.ExportedProgram or its .pt2 file: docs/torch.md
    example_inputs, example_kwargs, dynamic_shapes  of a module, as torch.export takes them:
             ingot.compile(module, (x,)); a model that needs none may have its target there
    fallback  nodes of a module that Ingot lacks run in PyTorch: exe.fallback has them
    target   "cpu" (this machine), a named CPU: "x86-64-v2", "x86-64-v3", …, or "c" (C99)
    threads  number per call; None: one per core that this process may use
    shapes   sizes or (low, high) ranges of dynamic dimensions: {"batch": 1, "seq": (1, 512)}; or
             whole shapes of inputs: {"ids": (1, 128)}
    outputs  values or nodes of the model, by name, that are its outputs instead of its own:
             what comes after them is not computed
    state    inputs updated in place: {"past": "present"}
    capacity rows of states that grow, present = concat(past, new): a number, or {"past": 1024};
             calls then take state=exe.new_state(…), docs/runtime.md
    kernels  custom operators: {"com.acme:MyOp": kernel}, by domain and name or by name; a
             kernel, or a function from the node's attributes to one
    jobs     worker processes, for schedules and LLVM; None: one per core
    profile  compile with cycle counters, for exe.profile(feeds)
    time_limit_s, memory_limit_bytes  of compilation; past one, the remaining kernels get plain
             schedules and less LLVM optimisation, and exe.report() says so
    specialise  sizes that calls have often get a build of their own in the background: True, or
             {"calls": 100, "max_builds": 4, "max_bytes": 1 << 30}; docs/runtime.md
    options  of this compilation: ingot.Options(off="winograd", jobs=2), or a dict; docs/api.md
    """
    if isinstance(example_inputs, str):
        target, example_inputs = example_inputs, None
    _check_count("threads", threads)
    limits = _limits(time_limit_s, memory_limit_bytes)
    _check_sizes(shapes)
    names = _names("outputs", outputs)
    _check_names("state", state, '{"past": "present"}')
    _check_capacity(state, capacity)
    _check_names("options", None if isinstance(options, Options) else options, '{"jobs": 2}')
    settings, chosen = Settings.of(specialise), Options.of(options)
    if settings is not None and shapes:
        shapes = lazy.load("shapes").named_sizes(model, shapes)  # for the keys of builds
    is_torch = _is_torch(model)
    if is_torch:
        model = lazy.load("torch.model")(model, example_inputs, example_kwargs, dynamic_shapes)
        shapes = lazy.load("shapes").named_sizes(model, shapes or {})
    elif any(x is not None for x in (example_inputs, example_kwargs, dynamic_shapes)):
        what = f"example_inputs and dynamic_shapes are given with a {type(model).__name__}"
        raise IngotError("bad-option", what, hint="they belong to a torch.nn.Module")
    if is_torch or _is_exported(model):
        _refuse_for_modules(is_torch, settings, state)
    if settings is not None:
        if capacity is not None:
            what = "specialise= and capacity= exclude each other"
            why = "the length of a state that grows is another one in each call"
            raise IngotError("bad-option", what, why=why, hint="leave specialise= out")
        build_requests = lazy.load("build_requests")
        model = build_requests.fixed_model(model)
    make = partial(
        _compile_with, chosen, model, target=target, threads=threads, shapes=shapes,
        outputs=names, state=state, capacity=capacity, kernels=kernels, jobs=jobs, profile=profile,
        limits=limits,
    )  # fmt: skip
    if is_torch:
        remake = partial(
            _remade, chosen, target=target, threads=threads, shapes=shapes, state=state,
            kernels=kernels, jobs=jobs, profile=profile, capacity=capacity,
            limits=lambda: _limits(time_limit_s, memory_limit_bytes),
        )  # fmt: skip
        if fallback:
            mixed = lazy.load("torch.mixed")(model, partial(_piece, make, remake), kernels)
            if mixed is not None:
                return mixed
    # the shapes of states with a capacity are not those of the model: no other version
    has_versions = _has_versions(model) and capacity is None and not is_torch
    versions = Versions(make, partial(_defaults, model)) if has_versions else None
    if settings is None:
        made = make(dump=dump, versions=versions)
        return _as_module(made, model, remake) if is_torch else _as_called(made)
    with using(chosen):
        build_requests.check_cacheable(model, kernels)
        request = cache.request(model, key_options(target, shapes, state, profile, outputs=names))
        asked = {
            "target": target, "shapes": shapes or {}, "outputs": names, "state": state,
            "profile": profile, "time_limit_s": time_limit_s,
            "memory_limit_bytes": memory_limit_bytes,
        }  # fmt: skip
        general = make(dump=dump, versions=versions)
        return _as_called(build_requests.specialising(general, settings, model, request, asked))


def _is_exported(model: Any) -> bool:
    return isinstance(model, str | PathLike) and os.fspath(model).endswith(".pt2")


def _refuse_for_modules(is_object: bool, settings: Settings | None, state: Any) -> None:
    """Errors for options that a PyTorch model cannot have; `is_object`: it is not a file."""
    if state:
        what = "state= and capacity= are for models whose inputs and outputs have names"
        why = "a PyTorch module updates its own buffers, or its arguments"
        hint = "register the cache as a buffer that forward() updates: docs/torch.md"
        raise IngotError("bad-option", what, why=why, hint=hint)
    if settings is not None and is_object:
        what = "specialise= is given with a PyTorch model that is not a file"
        why = "builds are made by other processes, which need the model"
        hint = "torch.export.save it to a .pt2 file, and compile that"
        raise IngotError("bad-option", what, why=why, hint=hint)


def _is_torch(model: Any) -> bool:
    """A module, a function or an exported program; a .pt2 file is read when it is imported."""
    kinds = {(kind.__module__, kind.__name__) for kind in type(model).__mro__}
    return isinstance(model, FunctionType | MethodType) or bool(kinds & _TORCH)


def _as_called(exe: Executable) -> Executable:
    """The executable of an exported module is called as the module."""
    return ModuleExecutable(exe) if exe.package.signature else exe


def _as_module(exe: Executable, model: Any, remake: Any) -> Executable:
    """The same, with the module's own weights, which may change."""
    exe.remake = remake
    if not exe.package.signature:
        return exe
    return ModuleExecutable(exe, lazy.load("torch.weights")(model), remake)


def _piece(make: partial[Executable], remake: Any, model: Any) -> Executable:
    """The executable of a part of a model that Ingot runs."""
    exe = partial(make.func, *make.args[:1], model, *make.args[2:], **make.keywords)()
    exe.remake = remake
    return exe


def _remade(
    options: Options, package: Package, model: Any, *, limits: Callable[[], Limits],
    threads: int | None, profile: bool, **given: Any,
) -> Executable:  # fmt: skip
    """The executable of a package whose model has other weights now."""
    with using(options):
        session = make_session(**given)
        session.profile, session.limits = profile, limits()
        session.store.drops_unused = not session.dump.wants_text
        session.store.lends = True
        package = lazy.load("refresh")(package, model, session)
        return Executable(package, threads, session.dump.times_s)


def _has_versions(model: Any) -> bool:
    """A graph says exactly how its sizes are related; a model of another format does not."""
    return type(model).__module__ != "ingot.graph.ir"


def _defaults(model: Any) -> frozenset[str]:
    """Inputs that have a default value, which a call may override."""
    names = getattr(frontends.find(model), "inputs_with_defaults", lambda model: ())
    return frozenset(names(model))


def _compile_with(options: Options, *args: Any, **given: Any) -> Executable:
    """A version of the model is compiled later, but with the options of the first."""
    with using(options):
        return _compile(*args, **given)


def _compile(
    model: Any,
    example: Mapping[str, tuple[int, ...]] | None = None,
    *,
    target: str,
    threads: int | None,
    shapes: Shapes | None,
    outputs: tuple[str, ...],
    state: Mapping[str, str] | None,
    capacity: Capacity | None,
    kernels: Mapping[str, Any] | None,
    jobs: int | None,
    profile: bool,
    limits: Limits,
    dump: Dump | None = None,
    versions: Versions | None = None,
) -> Executable:
    """`example`: shapes of the inputs, if this is another version of the model, made for these."""
    start = time.perf_counter()

    def request_for(shapes: Shapes | None) -> cache.Request | None:
        if kernels:  # a function has no digest: not cacheable
            return None
        asked = key_options(target, shapes, state, profile, capacity, outputs)
        return cache.request(model, {**asked, "example": example} if example else asked)

    def cached(request: cache.Request | None) -> Executable | None:
        wants_dump = dump is not None or bool(current().dump_dir)
        found = None if request is None or wants_dump else cache.lookup(request)
        if found is None:
            return None
        took = time.perf_counter() - start
        progress.LOG.info("%s: from the model cache in %.2f s", found.name, took)
        return Executable(found, threads, {"cache": took}, versions)

    request = request_for(shapes)
    found = cached(request)
    if found is None and _may_be_whole(shapes):
        # nothing is kept under whole shapes: what is found under a pair is a range
        shapes = lazy.load("shapes").named_sizes(model, shapes)
        request = request_for(shapes)
        found = cached(request)
    if found is not None:
        return found
    session = make_session(target, shapes, state, jobs, dump, kernels, capacity, outputs)
    session.profile, session.limits, session.example = profile, limits, example or {}
    session.store.drops_unused = not session.dump.wants_text
    obstacle = session.backend.why_not_here(session.target)
    if obstacle:  # an unsupported instruction would kill the process
        what = f"code for {target!r} cannot run here"
        hint = "the command line, ingot compile, shows the code without running it"
        raise IngotError("bad-target", what, why=obstacle, hint=hint)
    has_module = hasattr(model, "placeholders")  # whose weights may change
    session.fingerprint, session.store.lends = "" if has_module else None, has_module
    with progress.shown():
        package = lazy.load("pipeline").run_stages(model, session)
    for line in report.compile_times(session.dump.times_s):
        progress.LOG.info("%s: %s", package.name, line)
    package = replace(package, fingerprint=session.fingerprint or "")
    if request is not None and not limits.notes:  # another call may have a higher limit
        package = cache.keep(request, package, session.store.files)
    return Executable(package, threads, session.dump.times_s, versions)


def load(path: str | PathLike, threads: int | None = None) -> Executable:
    """Load what `exe.save` wrote. It contains machine code: load only files that you trust."""
    start = time.perf_counter()
    try:
        package = plan_file.read(str(path)).package
    except OSError as error:
        what = f"the plan file cannot be read: {error.strerror or error}"
        raise IngotError("bad-model", what, where=str(path)) from error
    obstacle = devices.why_not(package)
    if obstacle:
        raise IngotError(
            "bad-target",
            "this plan was compiled for another machine",
            where=str(path),
            why=obstacle,
            hint='compile it for many machines with target="x86-64-v3", or "x86-64-v2"',
        )
    return _as_called(Executable(package, threads, {"load": time.perf_counter() - start}))


def key_options(
    target: str = "cpu",
    shapes: Shapes | None = None,
    state: Mapping[str, str] | None = None,
    profile: bool = False,
    capacity: Capacity | None = None,
    outputs: Sequence[str] = (),
) -> dict[str, Any]:
    """The options in a cache key, as ingot.cache takes them."""
    pairs: dict[str, Mapping[str, Any]] = {"shapes": shapes or {}, "state": state or {}}
    if capacity is not None:
        pairs["capacity"] = capacity if isinstance(capacity, Mapping) else {"": capacity}
    named = {what: {str(k): v for k, v in given.items()} for what, given in pairs.items()}
    chosen = {"outputs": list(outputs)} if outputs else {}
    return {
        "target": target, "back end": backends.identity(target), **named, "profile": profile,
        **chosen,
    }  # fmt: skip


def make_session(
    target: str = "cpu",
    shapes: Shapes | None = None,
    state: Mapping[str, str] | None = None,
    jobs: int | None = None,
    dump: Dump | None = None,
    kernels: Mapping[str, Any] | None = None,
    capacity: Capacity | None = None,
    outputs: Sequence[str] = (),
) -> Any:
    """The pipeline's Session; the command line makes one too."""
    _check_count("jobs", jobs)
    _check_sizes(shapes)
    _check_capacity(state, capacity)
    return lazy.load("pipeline").open_session(
        target,
        shapes=dict(shapes or {}),
        outputs=tuple(outputs),
        state=dict(state or {}),
        capacity=capacity,
        kernels=lazy.load("kernels.hooks").hooks(kernels) if kernels else {},
        jobs=jobs,
        dump=dump or Dump(current().dump_dir),
    )


def _limits(time_limit_s: float | None, memory_limit_bytes: int | None) -> Limits:
    _check_count("memory_limit_bytes", memory_limit_bytes)
    is_number = isinstance(time_limit_s, int | float) and not isinstance(time_limit_s, bool)
    if time_limit_s is not None and not (is_number and time_limit_s >= 0):
        what = f"time_limit_s={time_limit_s!r}"
        raise IngotError("bad-option", what, hint="give a number of seconds, 0 or more")
    return Limits(time_limit_s, memory_limit_bytes)


def _check_count(name: str, value: Any) -> None:
    if value is not None and (not _is_int(value) or value < 1):
        raise IngotError("bad-option", f"{name}={value!r}", hint="give a number, 1 or more")


def _check_names(option: str, given: Any, example: str) -> None:
    if given is not None and not isinstance(given, Mapping):
        what = f"{option} is a mapping by name, not a {type(given).__name__}"
        raise IngotError("bad-option", what, hint=f"{option}={example}")


def _names(option: str, given: Any) -> tuple[str, ...]:
    is_list = isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
    if given is not None and not is_list:
        what = f"{option} is a list of names, not {given!r}"
        raise IngotError("bad-option", what, hint=f'{option}=["logits"]')
    return tuple(given or ())


def _check_capacity(state: Mapping[str, str] | None, capacity: Any) -> None:
    if capacity is None:
        return
    if not state:
        what, hint = "capacity= is given without state=", 'state={"past": "present"}, capacity=1024'
        raise IngotError("bad-option", what, hint=hint)
    each = capacity if isinstance(capacity, Mapping) else {"capacity": capacity}
    for name, rows in each.items():
        if not _is_int(rows) or rows < 1:
            what = f"{name}={rows!r}" if each is not capacity else f"capacity: {name!r} is {rows!r}"
            raise IngotError("bad-option", what, hint="give a number of rows, 1 or more")


def _check_sizes(shapes: Shapes | None) -> None:
    _check_names("shapes", shapes, '{"batch": 8}')
    for name, size in (shapes or {}).items():
        is_whole = isinstance(size, tuple | list)
        if not all(map(_is_int, size if is_whole else [size])):  # type: ignore[arg-type]
            what = f"shapes: {name!r} is {size!r}"
            hint = "give a number, a pair (low, high), or of an input its shape"
            raise IngotError("bad-option", what, hint=hint)


def _may_be_whole(shapes: Shapes | None) -> bool:
    return any(not isinstance(size, int) for size in (shapes or {}).values())


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
