"""All knobs (environment variables) of the compiler. Nothing else reads the environment.

    knobs.current().jobs                  the current values
    with knobs.override(verify=False):    other values within the block (tests)
    knobs.fingerprint()                   the knobs in cache keys

A knob `name` is set by INGOT_NAME; it is read once, at first use. Knobs that change the emitted
code are marked `affects_code`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, get_type_hints

from ingot.support.errors import IngotError

INF = float("inf")


def _knob(
    default: Any, doc: str, affects_code: bool = False, low: float = -INF, high: float = INF
) -> Any:
    meta = {"doc": doc, "affects_code": affects_code, "low": low, "high": high}
    return field(default=default, metadata=meta)


@dataclass(frozen=True)
class Knobs:
    """The values, with their defaults and docs."""

    jobs: int | None = _knob(None, "processes for code generation; none: one per core", low=1)
    threads: int | None = _knob(None, "threads per call; none: one per core", low=1)
    work_per_thread_us: float = _knob(
        20.0, "estimated work, in µs, from which another thread is woken; 0: always", low=0
    )
    spin_count: int = _knob(
        2000, "spins of a waiting worker before it yields", affects_code=True, low=0
    )
    yield_count: int = _knob(
        1000, "yields of a waiting worker before it parks", affects_code=True, low=0
    )
    fast_path: bool = _knob(True, "repeated calls take the native fast path, without Python code")
    verify: bool = _knob(True, "verify the IR after each stage")
    dump_dir: str = _knob("", "folder for the text of every stage; empty: no dumps")
    cache_dir: str = _knob("", "folder of the caches; empty: ~/.cache/ingot; off: none")
    cache_models: bool = _knob(True, "cache whole models; off: the objects of kernels only")
    cache_limit_bytes: int = _knob(
        8 << 30, "size limit of the caches; least recently used entries are evicted first", low=0
    )
    codegen_timeout_s: float = _knob(120.0, "seconds that LLVM may take for one kernel", low=0.1)
    fold_limit_bytes: int = _knob(
        64 << 20, "largest constant that folding may make", affects_code=True, low=0
    )
    layouts: bool = _knob(
        True, "channels-last layouts, and constant operands packed into panels", affects_code=True
    )
    recognize: bool = _knob(
        True, "replace subgraphs of primitive operators by composite operators", affects_code=True
    )
    sink_reshapes: bool = _knob(
        True,
        "sink reshapes below element-wise operators, which fuse into the GEMM epilogue",
        affects_code=True,
    )
    chunks: int = _knob(
        16,
        "maximum chunks that a thread's range of a launch is split into for work stealing; 1: no "
        "stealing",
        affects_code=True, low=1, high=64,
    )  # fmt: skip
    attention: bool = _knob(
        True,
        "fuse attention into one kernel; its scores stay in thread-private scratch",
        affects_code=True,
    )
    alias_buffers: bool = _knob(
        True,
        "elide copies: write concat and pad operands in place, read slices as views",
        affects_code=True,
    )
    scale_weights: bool = _knob(
        True,
        "scale a convolution's weights and not its input, where they are fewer",
        affects_code=True,
    )
    k_unroll: int = _knob(
        4, "unroll factor of a GEMM's k loop; 1: not unrolled",
        affects_code=True, low=1, high=16,
    )  # fmt: skip
    winograd: bool = _knob(
        True,
        "3 x 3 convolutions by Winograd F(2x2, 3x3), where the cost model predicts a gain",
        affects_code=True,
    )
    small_m_gemm: bool = _knob(
        True, "read B of a small-M GEMM in place, without packing it into panels", affects_code=True
    )
    cache_blocks: bool = _knob(
        True, "block the rows of a GEMM so that a block stays in cache", affects_code=True
    )
    prefetch: bool = _knob(
        True,
        "prefetch the next panel of weights, or the next row of a row reduction",
        affects_code=True,
    )
    partial_sums: bool = _knob(
        True,
        "split long float sums into partial sums, for smaller rounding errors",
        affects_code=True,
    )
    depthwise_order: bool = _knob(
        True, "order depthwise convolutions by blocks of channels, then rows", affects_code=True
    )
    transpose_tiles: bool = _knob(True, "transpose in tiles, in registers", affects_code=True)
    hoist_guards: bool = _knob(
        True, "test guards once per tile, not per element", affects_code=True
    )
    opt_level: int = _knob(3, "LLVM's optimisation level, 0 to 3", affects_code=True, low=0, high=3)
    cc: str = _knob("", "command of the C compiler; empty: cc, gcc, clang or the ziglang wheel")
    cc_flags: str = _knob("-O2", "flags of the C compiler besides -std=c99")
    cc_timeout_s: float = _knob(600.0, "seconds that the C compiler may take for a model", low=0.1)
    stack_limit_bytes: int = _knob(
        16384, "bytes of scratch that a kernel may keep on the stack", affects_code=True, low=0
    )


_PREFIX = "INGOT_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_KINDS: dict[Any, str] = {int: "a whole number", int | None: "a whole number", float: "a number",
                          bool: "on or off", str: "text"}  # fmt: skip
_overrides: list[Knobs] = []


def current() -> Knobs:
    """The current values."""
    return _overrides[-1] if _overrides else _from_process()


@contextmanager
def override(**values: Any) -> Iterator[Knobs]:
    """Other values inside the `with`, for the whole process: worker threads see them too."""
    _reject_unknown(values)
    for name, value in values.items():
        _check(_FIELDS[name], value, name)
    knobs = replace(current(), **values)
    _overrides.append(knobs)
    try:
        yield knobs
    finally:
        _overrides.pop()


def fingerprint() -> tuple[tuple[str, Any], ...]:
    """(name, value) of the knobs that change the emitted code."""
    knobs = current()
    return tuple(
        (f.name, getattr(knobs, f.name)) for f in _FIELDS.values() if f.metadata["affects_code"]
    )


def cache_folder() -> str | None:
    """The folder of the caches; None if caching is off."""
    asked = current().cache_dir
    if asked.lower() in _FALSE:
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore a relative path
        base = os.path.expanduser("~/.cache")
    return os.path.abspath(os.path.expanduser(asked)) if asked else os.path.join(base, "ingot")


def describe() -> list[tuple[str, str, str]]:
    """(environment name, default, doc) of every knob, for the command line and the docs."""
    return [(env_name(f.name), str(f.default), f.metadata["doc"]) for f in _FIELDS.values()]


def env_name(knob: str) -> str:
    return _PREFIX + knob.upper()


def from_environment(environ: Mapping[str, str]) -> Knobs:
    """The knobs set in an environment; an unknown or malformed INGOT_* variable is an error."""
    found = {k: v for k, v in environ.items() if k.startswith(_PREFIX)}
    values = {k[len(_PREFIX) :].lower(): text for k, text in found.items()}
    _reject_unknown(values, env_name)
    return Knobs(**{name: _parse(name, text) for name, text in values.items()})


def child_environment(**extra: str) -> dict[str, str]:
    """The environment of a child process: this one's, with the current knobs."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_PREFIX)}
    knobs = {env_name(name): _to_text(getattr(current(), name)) for name in _FIELDS}
    return {**kept, **knobs, **extra}


def _to_text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@lru_cache(maxsize=1)
def _from_process() -> Knobs:
    return from_environment(os.environ)


_FIELDS: dict[str, Field] = {f.name: f for f in fields(Knobs)}
_TYPES: dict[str, Any] = get_type_hints(Knobs)


def _reject_unknown(values: Mapping[str, Any], show: Callable[[str], str] = str) -> None:
    unknown = [show(name) for name in values if name not in _FIELDS]
    if unknown:
        raise IngotError(
            "bad-option",
            f"no such knob: {', '.join(sorted(unknown))}",
            hint="there are " + ", ".join(map(show, _FIELDS)),
        )


def _parse(name: str, text: str) -> Any:
    wanted = _TYPES[name]
    if wanted == int | None and text.strip().lower() in ("", "none"):
        return None
    try:
        value = _read(wanted, text.strip())
    except ValueError:
        raise _malformed(name, text) from None
    _check(_FIELDS[name], value, env_name(name))
    return value


def _read(wanted: Any, text: str) -> Any:
    if wanted is str:
        return text
    if wanted is float:
        return float(text)
    if wanted is not bool:
        return int(text, 0)
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(text)
    return text.lower() in _TRUE


def _check(knob: Field, value: Any, shown: str) -> None:
    wanted = _TYPES[knob.name]
    number_for_float = wanted is float and type(value) is int
    if not isinstance(value, wanted) and not number_for_float:
        raise _malformed(shown, value)
    if isinstance(value, bool) and wanted is not bool:
        raise _malformed(shown, value)
    low, high = knob.metadata["low"], knob.metadata["high"]
    if isinstance(value, int | float) and not low <= value <= high:
        allowed = f"at least {low}" if high == INF else f"from {low} to {high}"
        raise IngotError("bad-option", f"{shown} = {value}: must be {allowed}")


def _malformed(name: str, value: object) -> IngotError:
    knob = name.removeprefix(_PREFIX).lower()
    return IngotError(
        "bad-option",
        f"{env_name(knob)}: {value!r} is not {_KINDS[_TYPES[knob]]}",
        why=_FIELDS[knob].metadata["doc"],
    )
