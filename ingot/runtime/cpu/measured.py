"""The measured machine: clock and bandwidths of this host, in a JSON file of the cache folder.

In: rates that `ingot doctor --measure` measured. Out: the host's `Machine` with these rates; the
cost model of the target `cpu` reads it (backends/cpu.py), named targets never do, and the model
cache has it in its keys (cache.py).

A file is for one description of a host: its processor, caches and cores. Its name is the digest of
that, so machines that share a folder have a file each. It is not evicted with cache entries: plans
would change. A file that is damaged, of another host or with implausible rates is not used, and
`ingot doctor` reports it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from ingot.machine import Machine
from ingot.runtime.cpu.pool import usable_cores
from ingot.support import identity, options
from ingot.support.cache_folder import CacheFolder, open_folder
from ingot.support.errors import IngotError

# Plausible rates, by field: wider than any CPU from a small core at its lowest clock to a server.
RANGES: dict[str, tuple[float, float]] = {
    "clock_ghz": (0.1, 10.0),
    "cache_bytes_per_cycle": (0.25, 2048.0),  # of each level
    "core_memory_bytes_per_ns": (1.0, 1000.0),
    "memory_bytes_per_ns": (1.0, 20000.0),
}


@dataclass(frozen=True)
class Rates:
    """The fields of a `Machine` that are measured."""

    clock_ghz: float
    cache_bytes_per_cycle: tuple[float, ...]
    core_memory_bytes_per_ns: float
    memory_bytes_per_ns: float


@dataclass(frozen=True)
class Stored:
    """What is stored for this host; `problem` says why a file there is not used."""

    path: str  # empty: caching is off, or the folder is not safe
    rates: Rates | None = None
    problem: str = ""


def machine(row: Machine) -> Machine:
    """The machine of a table row, with this host's measured rates if there are any."""
    rates = in_use()
    return row if rates is None else replace(row, name=f"{row.name}, measured", **vars(rates))


def in_use() -> Rates | None:
    """The rates that compilation uses; None: those of the table of machines."""
    return find().rates if options.current().has("measured_machine") else None


def find() -> Stored:
    folder = open_folder("machines")
    if folder is None:
        return Stored("")
    path = folder.path(_file_name())
    try:
        with open(path, "rb") as file:
            return Stored(path, _parse(file.read()))
    except FileNotFoundError:
        return Stored(path)
    except (OSError, IngotError) as error:
        return Stored(path, problem=str(getattr(error, "what", error)))


def store(rates: Rates) -> str:
    """Keep plausible rates for this host; the path of the file."""
    check(rates)
    folder = _writable()
    text = json.dumps({"host": host(), "rates": asdict(rates)}, indent=2).encode()
    path = folder.store(_file_name(), len(text), lambda file: file.write(text))
    if path is None:
        raise _not_stored(f"{folder.root} cannot be written")
    return path


def forget() -> bool:
    """Remove what is stored for this host; False if there is nothing."""
    path = _writable().path(_file_name())
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def check(rates: Rates) -> None:
    """An error names the first rate that no machine can have."""
    for name, (low, high) in RANGES.items():
        found = getattr(rates, name)
        values = found if isinstance(found, tuple) else (found,)
        if not values or not all(_is_number(v) and low <= v <= high for v in values):
            raise IngotError(
                "limit",
                f"{name} = {found} is implausible for a machine",
                why=f"it must be from {low:g} to {high:g}",
                hint="measure again while nothing else runs",
            )


def host() -> dict[str, Any]:
    """The description of this host that rates belong to."""
    return {
        "processor": identity.processor(),
        "caches": list(identity.cpu_caches()),
        "cores": usable_cores(),
    }


def _parse(text: bytes) -> Rates:
    try:
        data = json.loads(text)
        described, fields = data["host"], data["rates"]
        levels = tuple(fields["cache_bytes_per_cycle"])
        rates = Rates(**{**fields, "cache_bytes_per_cycle": levels})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise IngotError("bad-text", f"the file is damaged: {error!r}") from error
    if described != host():
        raise IngotError("bad-text", "the file was measured on another machine")
    check(rates)
    return rates


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _file_name() -> str:
    text = json.dumps(host(), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest() + ".json"


def _writable() -> CacheFolder:
    folder = open_folder("machines")
    if folder is None:
        raise _not_stored("caching is off, or its folder is not safe")
    return folder


def _not_stored(why: str) -> IngotError:
    what = "there is no folder for the measured machine"
    return IngotError("bad-option", what, why=why, hint="set INGOT_CACHE_DIR to a folder of yours")
