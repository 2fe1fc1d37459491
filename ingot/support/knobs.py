"""Every knob of the compiler, in one typed file. Nothing else reads the environment.

    knobs.current().jobs                  the current values
    with knobs.override(verify=False):    other values for a while (tests)
    knobs.fingerprint()                   what caches must key on

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
    default: Any, doc: str, affects_code: bool = False, least: float = -INF, most: float = INF
) -> Any:
    meta = {"doc": doc, "affects_code": affects_code, "least": least, "most": most}
    return field(default=default, metadata=meta)


@dataclass(frozen=True)
class Knobs:
    """The values; defaults here, docs beside them."""

    jobs: int | None = _knob(None, "processes for code generation; none: one a core", least=1)
    threads: int | None = _knob(None, "threads of a call; none: one a core", least=1)
    work_per_thread_us: float = _knob(
        20.0, "work that makes another thread worth waking; 0: always", least=0
    )
    spin_count: int = _knob(
        2000, "times a waiting worker looks before it lets others run", affects_code=True, least=0
    )
    yield_count: int = _knob(
        1000, "times it lets others run before it parks", affects_code=True, least=0
    )
    native_calls: bool = _knob(True, "calls like the one before run without Python code")
    verify: bool = _knob(True, "check the IRs between stages")
    dump_dir: str = _knob("", "folder for the text of every stage; empty: no dumps")
    cache_dir: str = _knob("", "folder of the caches; empty: ~/.cache/ingot; off: none")
    cache_limit_bytes: int = _knob(
        8 << 30, "size of the caches; what was not used for longest goes first", least=0
    )
    codegen_timeout_s: float = _knob(120.0, "seconds one kernel may take in LLVM", least=0.1)
    fold_limit_bytes: int = _knob(
        64 << 20, "largest constant that folding may make", affects_code=True, least=0
    )
    layouts: bool = _knob(
        True, "store values and constants in the order that suits the machine", affects_code=True
    )
    recognize: bool = _knob(
        True, "make rich operators of formulas in small ones", affects_code=True
    )
    sink_reshapes: bool = _knob(
        True, "let what is done by element ride on a product before its reshape", affects_code=True
    )
    parts: int = _knob(
        16,
        "into how many parts a thread's share of a launch is cut at most, for others to take; 1: "
        "whole shares",
        affects_code=True, least=1, most=64,
    )  # fmt: skip
    attention: bool = _knob(
        True, "keep the scores between two products in a thread's own memory", affects_code=True
    )
    in_place: bool = _knob(
        True,
        "make what is joined or padded in its place, read slices where they lie",
        affects_code=True,
    )
    scale_weights: bool = _knob(
        True,
        "scale a convolution's weights and not its input, if they are fewer",
        affects_code=True,
    )
    steps: int = _knob(
        4, "steps of a product's sum written out at once; 1: a loop of single steps",
        affects_code=True, least=1, most=16,
    )  # fmt: skip
    winograd: bool = _knob(
        True, "3 x 3 convolutions by fewer products, where that pays", affects_code=True
    )
    few_rows: bool = _knob(
        True, "read the other operand of a product of few rows as it lies", affects_code=True
    )
    row_blocks: bool = _knob(
        True, "take the rows of a product in blocks that stay in a cache", affects_code=True
    )
    fetch_ahead: bool = _knob(
        True, "fetch the next panel of weights, or row, while one is used", affects_code=True
    )
    long_sums: bool = _knob(
        True, "add up long sums in parts, whose rounding errors are smaller", affects_code=True
    )
    windows: bool = _knob(
        True, "go down the map with few channels where windows are large", affects_code=True
    )
    turn_tiles: bool = _knob(True, "transpose in tiles turned in registers", affects_code=True)
    whole_tiles: bool = _knob(
        True, "test guards once for a tile, not for each of its elements", affects_code=True
    )
    opt_level: int = _knob(
        3, "LLVM's optimisation level, 0 to 3", affects_code=True, least=0, most=3
    )
    stack_limit_bytes: int = _knob(
        16384, "scratch a kernel may keep on its stack", affects_code=True, least=0
    )


_PREFIX = "INGOT_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_KINDS: dict[Any, str] = {int: "a whole number", int | None: "a whole number", float: "a number",
                          bool: "on or off", str: "text"}  # fmt: skip
_overrides: list[Knobs] = []


def current() -> Knobs:
    """The knobs in force here."""
    return _overrides[-1] if _overrides else _from_process()


@contextmanager
def override(**values: Any) -> Iterator[Knobs]:
    """Other values inside the `with`, for the whole process: worker threads see them too."""
    _refuse_unknown(values)
    for name, value in values.items():
        _check(_FIELDS[name], value, name)
    knobs = replace(current(), **values)
    _overrides.append(knobs)
    try:
        yield knobs
    finally:
        _overrides.pop()


def fingerprint() -> tuple[tuple[str, Any], ...]:
    """Names and values of the knobs that change the emitted code."""
    knobs = current()
    return tuple(
        (f.name, getattr(knobs, f.name)) for f in _FIELDS.values() if f.metadata["affects_code"]
    )


def cache_folder() -> str | None:
    """Where the caches are; None where they are switched off."""
    asked = current().cache_dir
    if asked.lower() in _FALSE:
        return None
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # the standard says to ignore it then
        home = os.path.expanduser("~/.cache")
    return os.path.abspath(os.path.expanduser(asked)) if asked else os.path.join(home, "ingot")


def describe() -> list[tuple[str, str, str]]:
    """(environment name, default, doc) of every knob, for the command line and the docs."""
    return [(env_name(f.name), str(f.default), f.metadata["doc"]) for f in _FIELDS.values()]


def env_name(knob: str) -> str:
    return _PREFIX + knob.upper()


def from_environment(environ: Mapping[str, str]) -> Knobs:
    """The knobs an environment asks for; an unknown or malformed INGOT_* name is an error."""
    found = {k: v for k, v in environ.items() if k.startswith(_PREFIX)}
    values = {k[len(_PREFIX) :].lower(): text for k, text in found.items()}
    _refuse_unknown(values, env_name)
    return Knobs(**{name: _parse(name, text) for name, text in values.items()})


def child_environment(**extra: str) -> dict[str, str]:
    """The environment for a process Ingot starts: this one's, with the knobs in force here."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_PREFIX)}
    knobs = {env_name(name): _spell(getattr(current(), name)) for name in _FIELDS}
    return {**kept, **knobs, **extra}


def _spell(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@lru_cache(maxsize=1)
def _from_process() -> Knobs:
    return from_environment(os.environ)


_FIELDS: dict[str, Field] = {f.name: f for f in fields(Knobs)}
_TYPES: dict[str, Any] = get_type_hints(Knobs)


def _refuse_unknown(values: Mapping[str, Any], spell: Callable[[str], str] = str) -> None:
    unknown = [spell(name) for name in values if name not in _FIELDS]
    if unknown:
        raise IngotError(
            "bad-option",
            f"no such knob: {', '.join(sorted(unknown))}",
            hint="there are " + ", ".join(map(spell, _FIELDS)),
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


def _check(knob: Field, value: Any, spelled: str) -> None:
    wanted = _TYPES[knob.name]
    number_for_float = wanted is float and type(value) is int
    if not isinstance(value, wanted) and not number_for_float:
        raise _malformed(spelled, value)
    if isinstance(value, bool) and wanted is not bool:
        raise _malformed(spelled, value)
    least, most = knob.metadata["least"], knob.metadata["most"]
    if isinstance(value, int | float) and not least <= value <= most:
        allowed = f"at least {least}" if most == INF else f"from {least} to {most}"
        raise IngotError("bad-option", f"{spelled} = {value}: must be {allowed}")


def _malformed(name: str, value: object) -> IngotError:
    knob = name.removeprefix(_PREFIX).lower()
    return IngotError(
        "bad-option",
        f"{env_name(knob)}: {value!r} is not {_KINDS[_TYPES[knob]]}",
        why=_FIELDS[knob].metadata["doc"],
    )
