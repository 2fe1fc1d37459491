"""CPU features that compiled code needs and this machine lacks. Called by api.load.

In: features by LLVM's names. Out: the missing ones. The names in /proc/cpuinfo differ from LLVM's
in dots and dashes, which are ignored here, and in the names of the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.support.identity import processor

# LLVM's name → Linux's; empty: it has no instructions that LLVM would select
_NAMES = {
    "64bit": "lm", "bmi": "bmi1", "crc32": "sse42", "lzcnt": "abm", "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch", "rdrnd": "rdrand", "sahf": "lahflm", "sha": "shani",
    "shstk": "", "sse3": "pni", "x87": "fpu",
}  # fmt: skip


def missing_features(features: Iterable[str]) -> list[str]:
    """The features that this processor lacks; empty if the system has no /proc/cpuinfo."""
    _, found, flags = processor().partition("flags :")
    present = {_plain(flag) for flag in flags.partition(";")[0].split()}
    needed = {feature: _NAMES.get(feature, _plain(feature)) for feature in features}
    return [feature for feature, name in needed.items() if found and name and name not in present]


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "").replace("-", "")
