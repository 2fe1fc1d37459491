"""Can this machine run compiled code? In: architecture and features, by LLVM's names. Out: why not.

A feature that LLVM names is looked up among the flags of /proc/cpuinfo. Linux's names differ from
LLVM's in dots and dashes, which are ignored here, and in the names of the tables.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable

from ingot.support.identity import processor

# LLVM's name → Linux's, by architecture; empty: no instructions that LLVM would select need it
_NAMES = {
    "x86_64": {
        "64bit": "lm", "bmi": "bmi1", "crc32": "sse42", "lzcnt": "abm", "pclmul": "pclmulqdq",
        "prfchw": "3dnowprefetch", "rdrnd": "", "rdseed": "", "sahf": "lahflm", "sha": "shani",
        "shstk": "", "sse3": "pni", "x87": "fpu",
    },
    "aarch64": {
        "altnzcv": "flagm2", "complxnum": "fcma", "crc": "crc32", "dotprod": "asimddp",
        "fp-armv8": "fp", "fp16fml": "asimdfhm", "fptoint": "frint", "fullfp16": "asimdhp",
        "jsconv": "jscvt", "lse": "atomics", "neon": "asimd", "pauth": "paca", "perfmon": "",
        "rand": "rng", "rcpc": "lrcpc", "rdm": "asimdrdm",
    },
}  # fmt: skip
# what Linux calls the list of flags in /proc/cpuinfo
_FLAGS = {"x86_64": "flags :", "aarch64": "Features :"}
_OTHER_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}  # of architectures, on other systems


def architecture() -> str:
    """This machine's, as in the first part of a target's triple."""
    name = platform.machine().lower()
    return _OTHER_NAMES.get(name, name)


def why_not(needed: str, features: Iterable[str]) -> str:
    """Why code for an architecture with features cannot run here; empty if it can."""
    if needed != architecture():
        return f"it is {needed} code, this machine is {architecture()}"
    missing = missing_features(features)
    return f"this machine lacks {', '.join(missing)}" if missing else ""


def missing_features(features: Iterable[str]) -> list[str]:
    """The features that this processor lacks; empty if the system has no /proc/cpuinfo."""
    return missing_from(processor(), architecture(), features)


def missing_from(cpuinfo: str, architecture: str, features: Iterable[str]) -> list[str]:
    """The features that are not among the flags of a processor (support/identity.py)."""
    names = _NAMES.get(architecture, {})
    _, found, flags = cpuinfo.partition(_FLAGS.get(architecture, "flags :"))
    present = {_plain(flag) for flag in flags.partition(";")[0].split()}
    needed = {feature: names.get(feature, _plain(feature)) for feature in features}
    return [feature for feature, name in needed.items() if found and name and name not in present]


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "").replace("-", "")
