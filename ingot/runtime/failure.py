"""Error records → Ingot errors: which node failed, and why, in the user's own names."""

from __future__ import annotations

from ingot.runtime.package import Package
from ingot.support.abi import BAD_SIZE, NO_MEMORY
from ingot.support.errors import IngotError


def run_error(package: Package, records: list[tuple[int, int, int, int]]) -> IngotError:
    """The first failure in the program's order."""
    launch, reason, first, second = min(records)
    info = package.launches[launch]
    if reason == NO_MEMORY:
        return IngotError("run-failed", "memory ran out while the model was running")
    if reason == BAD_SIZE:
        what = f"a size computed by the model is {first}, which is not possible"
    else:
        what = info.reasons[reason - 1].format(first, second)
    return IngotError("run-failed", what, where=info.origin or f"kernel {info.kernel}")
