"""Options of a compilation, in one typed file. Nothing else reads the environment.

    ingot.compile(model, options=ingot.Options(off="attention,winograd", jobs=2))   of a compilation
    ingot.compile(model, options={"off": "attention,winograd", "jobs": 2})     the same
    ingot compile model.onnx --off attention,winograd --option jobs=2          the same
    INGOT_OFF=attention,winograd INGOT_JOBS=2                                  of the process

A session has an `Options` value; while its stages run, `current()` is that value, in this context
only (a ContextVar): two compilations at once do not see each other's. Outside of a session it is
what the environment says, read once. Options that change the emitted code are marked
`affects_code`, and are part of the cache keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, get_type_hints

from ingot.support.errors import IngotError

INF = float("inf")

# Optimisations that `off` can switch off: results stay within rounding.
FEATURES: dict[str, str] = {
    "alias_buffers": "elide copies: write concat and pad operands in place, read slices as views",
    "attention": "fuse attention into one kernel; its scores stay in thread-private scratch",
    "cache_blocks": "block the rows of a GEMM so that a block stays in cache",
    "depthwise_order": "order depthwise convolutions by blocks of channels, then rows",
    "fast_path": "repeated calls take the native fast path, without Python code",
    "fold_output_scales": "fold an output's scale into the integer contraction before it",
    "hoist_guards": "test guards once per tile, not per element",
    "integers": "contractions of quantised tensors in integers, not dequantised to floats",
    "k_unroll": "unroll a GEMM's k loop by the option k_unroll",
    "layouts": "channels-last layouts, and constant operands packed into panels",
    "lookup_tables": "functions between two quantised values as tables of 256 results",
    "measured_machine": "plan by this machine's rates that `ingot doctor --measure` stored",
    "partial_sums": "split long float sums into partial sums, for smaller rounding errors",
    "prefetch": "prefetch the next panel of weights, or the next row of a row reduction",
    "recognize": "replace subgraphs of primitive operators by composite operators",
    "scale_weights": "scale a convolution's weights and not its input, where they are fewer",
    "sink_dequantize": "sink dequantisation below movement, and raise quantisation above it",
    "sink_reshapes": "sink reshapes below element-wise operators, for epilogue fusion",
    "small_m_gemm": "read B of a small-M GEMM in place, without packing it into panels",
    "split_batch": "a loop over micro-batches, where a batch's activations exceed the cache",
    "transpose_tiles": "transpose in tiles, in registers",
    "winograd": "3 x 3 convolutions by Winograd F(2x2, 3x3), where a gain is predicted",
}


class _Inherited:
    def __repr__(self) -> str:
        return "as in force"


_INHERITED = _Inherited()  # the default of every option: what is in force where one is made


def _option(
    default: Any, doc: str, affects_code: bool = False, low: float = -INF, high: float = INF
) -> Any:
    meta = {
        "default": default, "doc": doc, "affects_code": affects_code, "low": low, "high": high,
    }  # fmt: skip
    return field(default=_INHERITED, metadata=meta)


@dataclass(frozen=True)
class Options:
    """Options of a compilation: `ingot.compile(model, options=ingot.Options(jobs=2))`.

    An option that is not given is as the environment says (INGOT_JOBS=2), else as listed; inside a
    command it is as that command was told. `off` may also be a text: "attention,winograd".
    """

    off: frozenset[str] = _option(
        frozenset(), "optimisations to switch off, by name", affects_code=True
    )
    jobs: int | None = _option(
        None, "worker processes, for schedules and LLVM; none: one per core", low=1
    )
    threads: int | None = _option(None, "threads per call; none: one per core", low=1)
    work_per_thread_us: float = _option(
        20.0, "estimated work, in µs, from which another thread is woken; 0: always", low=0
    )
    spin_count: int = _option(
        2000, "spins of a waiting worker before it yields", affects_code=True, low=0
    )
    yield_count: int = _option(
        1000, "yields of a waiting worker before it parks", affects_code=True, low=0
    )
    verify: bool = _option(True, "verify the IR after each stage")
    progress: bool = _option(
        True, "a progress bar on a terminal, for compilations of over a second"
    )
    dump_dir: str = _option("", "folder for the text of every stage; empty: no dumps")
    cache_dir: str = _option("", "folder of the caches; empty: ~/.cache/ingot; off: none")
    cache_models: bool = _option(True, "cache whole models; off: the objects of kernels only")
    cache_limit_bytes: int = _option(
        8 << 30, "size limit of the caches; least recently used entries are evicted first", low=0
    )
    codegen_timeout_s: float = _option(120.0, "seconds that LLVM may take for one kernel", low=0.1)
    fold_limit_bytes: int = _option(
        64 << 20, "largest constant that folding may make", affects_code=True, low=0
    )
    chunks: int = _option(
        16,
        "maximum chunks that a thread's range of a launch is split into for work stealing; 1: no "
        "stealing",
        affects_code=True, low=1, high=64,
    )  # fmt: skip
    k_unroll: int = _option(
        4, "unroll factor of a GEMM's k loop; 1: not unrolled",
        affects_code=True, low=1, high=16,
    )  # fmt: skip
    int8_activations: bool = _option(
        False,
        "quantise activations to 8 bits, with a scale for each block, where the weights have a few "
        "bits",
        affects_code=True,
    )
    bf16_dots: bool = _option(
        False,
        "multiply bf16 by dot-product instructions, where the target has them: about twice the "
        "rate of f32; products are exact, sums are f32 in the instruction's order, and subnormal "
        "numbers may count as zero",
        affects_code=True,
    )  # fmt: skip
    opt_level: int = _option(
        3, "LLVM's optimisation level, 0 to 3", affects_code=True, low=0, high=3
    )
    cc: str = _option("", "command of the C compiler; empty: cc, gcc, clang or the ziglang wheel")
    cc_flags: str = _option("-O2", "flags of the C compiler besides -std=c99")
    cc_timeout_s: float = _option(
        600.0, "seconds that the C compiler may take for a model", low=0.1
    )
    stack_limit_bytes: int = _option(
        16384, "bytes of scratch that a kernel may keep on the stack", affects_code=True, low=0
    )

    def __post_init__(self) -> None:
        for name, option in _FIELDS.items():
            value = getattr(self, name)
            if value is _INHERITED:
                value = getattr(current(), name)
            elif name == "off":
                value = _features(value, name)
            else:
                _check(option, value, name)
            object.__setattr__(self, name, value)

    def has(self, feature: str) -> bool:
        """Is an optimisation on?"""
        assert feature in FEATURES, f"{feature} is not in options.FEATURES"
        return feature not in self.off

    @staticmethod
    def of(given: Options | Mapping[str, Any] | None) -> Options:
        """What a caller gave: options, some of them by name, or none for those in force here."""
        if isinstance(given, Options):
            return given
        return changed(**(given or {}))


_PREFIX = "INGOT_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_KINDS: dict[Any, str] = {int: "a whole number", int | None: "a whole number", float: "a number",
                          bool: "on or off", str: "text"}  # fmt: skip
_current: ContextVar[Options | None] = ContextVar("ingot options", default=None)


def current() -> Options:
    """The options in force here: the session's, else the environment's."""
    return _current.get() or _from_process()


def changed(**values: Any) -> Options:
    """The options in force here, with other values by name; both are checked."""
    _reject_unknown(values)
    return replace(current(), **values)


def differing(options: Options) -> dict[str, Any]:
    """The options that are not the defaults, as `changed` takes them."""
    values = ((f.name, getattr(options, f.name), f.default) for f in _FIELDS.values())
    found = {name: value for name, value, default in values if value != default}
    return {n: ",".join(sorted(v)) if isinstance(v, frozenset) else v for n, v in found.items()}


@contextmanager
def using(options: Options) -> Iterator[Options]:
    """These options inside the `with`, in this context."""
    token = _current.set(options)
    try:
        yield options
    finally:
        _current.reset(token)


@contextmanager
def override(**values: Any) -> Iterator[Options]:
    """Other values inside the `with`, in this context."""
    with using(changed(**values)) as options:
        yield options


def fingerprint() -> tuple[tuple[str, Any], ...]:
    """(name, value) of the options that change the emitted code."""
    options = current()
    values = ((f.name, getattr(options, f.name)) for f in _FIELDS.values() if _affects_code(f))
    return tuple((name, sorted(v) if isinstance(v, frozenset) else v) for name, v in values)


def _affects_code(option: Field) -> bool:
    return option.metadata["affects_code"]


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
    """(environment name, default, doc) of every option, for the command line and the docs."""
    return [
        (env_name(name), _to_text(option.metadata["default"]), option.metadata["doc"])
        for name, option in _FIELDS.items()
    ]


def env_name(option: str) -> str:
    return _PREFIX + option.upper()


def from_environment(environ: Mapping[str, str]) -> Options:
    """The options set in an environment; an unknown or malformed INGOT_* variable is an error."""
    found = {k: v for k, v in environ.items() if k.startswith(_PREFIX)}
    values = {k[len(_PREFIX) :].lower(): text for k, text in found.items()}
    _reject_unknown(values, env_name)
    defaults = {name: option.metadata["default"] for name, option in _FIELDS.items()}
    return Options(**{**defaults, **{name: _parse(name, text) for name, text in values.items()}})


def child_environment(**extra: str) -> dict[str, str]:
    """The environment of a child process: this one's, with the current options."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_PREFIX)}
    options = {env_name(name): _to_text(getattr(current(), name)) for name in _FIELDS}
    return {**kept, **options, **extra}


def _to_text(value: Any) -> str:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@lru_cache(maxsize=1)
def _from_process() -> Options:
    return from_environment(os.environ)


_FIELDS: dict[str, Field] = {f.name: f for f in fields(Options)}
_TYPES: dict[str, Any] = get_type_hints(Options)


def _reject_unknown(values: Mapping[str, Any], show: Callable[[str], str] = str) -> None:
    unknown = [show(name) for name in values if name not in _FIELDS]
    if unknown:
        raise IngotError(
            "bad-option",
            f"no such option: {', '.join(sorted(unknown))}",
            hint="there are " + ", ".join(map(show, _FIELDS)),
        )


def from_text(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Values of options given as text, as on the command line."""
    _reject_unknown(pairs)
    return {name: _parse(name, text) for name, text in pairs.items()}


def _features(given: str | Iterable[str], shown: str) -> frozenset[str]:
    """Names of optimisations, from a list or a text with commas."""
    names = given.split(",") if isinstance(given, str) else given
    found = frozenset(name.strip() for name in names if name.strip())
    unknown = sorted(found - FEATURES.keys())
    if unknown:
        what = f"{shown}: no optimisation is called {unknown[0]!r}"
        raise IngotError("bad-option", what, hint="there are " + ", ".join(FEATURES))
    return found


def _parse(name: str, text: str) -> Any:
    wanted = _TYPES[name]
    if name == "off":
        return _features(text, env_name(name))
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


def _check(option: Field, value: Any, shown: str) -> None:
    wanted = _TYPES[option.name]
    if wanted == frozenset[str]:
        return  # checked by name
    number_for_float = wanted is float and type(value) is int
    if not isinstance(value, wanted) and not number_for_float:
        raise _malformed(shown, value)
    if isinstance(value, bool) and wanted is not bool:
        raise _malformed(shown, value)
    low, high = option.metadata["low"], option.metadata["high"]
    if isinstance(value, int | float) and not low <= value <= high:
        allowed = f"at least {low}" if high == INF else f"from {low} to {high}"
        raise IngotError("bad-option", f"{shown} = {value}: must be {allowed}")


def _malformed(name: str, value: object) -> IngotError:
    option = name.removeprefix(_PREFIX).lower()
    return IngotError(
        "bad-option",
        f"{env_name(option)}: {value!r} is not {_KINDS[_TYPES[option]]}",
        why=_FIELDS[option].metadata["doc"],
    )
