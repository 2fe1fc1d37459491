"""What this machine's processor lacks of what some code needs. Called by api.load.

In: LLVM's names of features. Out: those that are not there. The kernel's names in /proc/cpuinfo
differ in points and dashes, which are left out here, and in the few words of the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from ingot.support.identity import processor

# LLVM's word → the kernel's; empty: no instruction that the code generator would choose
_WORDS = {
    "64bit": "lm", "bmi": "bmi1", "crc32": "sse42", "lzcnt": "abm", "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch", "rdrnd": "rdrand", "sahf": "lahflm", "sha": "shani",
    "shstk": "", "sse3": "pni", "x87": "fpu",
}  # fmt: skip


def missing_features(features: Iterable[str]) -> list[str]:
    """Of the features, those that this processor lacks; none where the system does not tell."""
    _, found, flags = processor().partition("flags :")
    present = {_plain(flag) for flag in flags.partition(";")[0].split()}
    wanted = {feature: _WORDS.get(feature, _plain(feature)) for feature in features}
    return [feature for feature, word in wanted.items() if found and word and word not in present]


def _plain(word: str) -> str:
    return word.replace("_", "").replace(".", "").replace("-", "")
