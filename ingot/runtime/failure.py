"""Error records of a run → IngotError: which node of the model failed, and why."""

from __future__ import annotations

from typing import Any

from ingot.runtime.host_calls import take_error
from ingot.runtime.package import Package
from ingot.support.abi import BAD_SIZE, HOST_FAILED, NO_MEMORY
from ingot.support.errors import IngotError


def run_error(package: Package, records: list[tuple[int, int, int, int]]) -> IngotError:
    """The first failure in program order. If several threads failed in one launch, any of them:
    which thread reached which element depends on timing."""
    launch, reason, first, second = min(records, key=lambda record: record[0])
    info = package.launches[launch]
    if reason == NO_MEMORY:
        return no_memory("a size that the model computed is too large", info.origin)
    if reason == HOST_FAILED:
        error = take_error(info.kernel)
        return IngotError(error.code, error.what, where=info.origin, why=error.why, hint=error.hint)
    if reason == BAD_SIZE:
        what = f"the model computed an invalid size: {first}"
    else:
        what = info.reasons[reason - 1].format(first, second)
    return IngotError("run-failed", what, where=info.origin or f"kernel {info.kernel}")


def closed() -> IngotError:
    hint = "keep it open while it is used, or compile or load it again"
    return IngotError("bad-option", "the executable is closed", hint=hint)


class Closed:
    """In the place of a loaded module that was closed: to use it in any way is an error."""

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise closed()


def no_memory(why: str, where: str = "") -> IngotError:
    return IngotError(
        "run-failed",
        "out of memory",
        where=where,
        why=why,
        hint="use smaller inputs or fewer concurrent calls; see exe.memory_for(...)",
    )
