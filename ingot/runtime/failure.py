"""Error records → Ingot errors: which node failed, and why, in the user's own names."""

from __future__ import annotations

from ingot.runtime.package import Package
from ingot.support.abi import BAD_SIZE, NO_MEMORY
from ingot.support.errors import IngotError


def run_error(package: Package, records: list[tuple[int, int, int, int]]) -> IngotError:
    """The first failure in the program's order; of threads that failed in one launch, any one's:
    which thread met which element depends on who was quicker."""
    launch, reason, first, second = min(records, key=lambda record: record[0])
    info = package.launches[launch]
    if reason == NO_MEMORY:
        return no_memory("a size the model computed is too large", info.origin)
    if reason == BAD_SIZE:
        what = f"a size computed by the model is {first}, which is not possible"
    else:
        what = info.reasons[reason - 1].format(first, second)
    return IngotError("run-failed", what, where=info.origin or f"kernel {info.kernel}")


def no_memory(why: str, where: str = "") -> IngotError:
    return IngotError(
        "run-failed",
        "memory ran out",
        where=where,
        why=why,
        hint="smaller inputs, fewer calls at once; exe.memory_for(...) says what sizes need",
    )
