"""Target descriptions. In: a name, and for "cpu" the back end's HostFeatures. Out: `Target`.

Cost models, schedules and legalize ask a target for features and sizes, never for its name. The
back end passes in what only LLVM knows of the host (CPU name, feature list): this module does not
import LLVM. Feature names are LLVM's.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ingot.dtypes import DType
from ingot.machine import GENERIC, Machine
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class MemoryScope:
    """A memory scope of buffers. `bytes` is None where there is no fixed size."""

    scope: str
    bytes: int | None = None
    is_shared: bool = True  # all threads see one copy


CPU_MEMORIES = (
    MemoryScope("global"),
    MemoryScope("thread", is_shared=False),
    MemoryScope("register", None, False),
)

# Composite operators that are not decomposed: their own loop nests are faster on any CPU.
CPU_KEEPS = frozenset({
    "softmax", "log_softmax", "layer_norm", "rms_norm", "gelu", "silu", "mish", "elu", "selu",
    "celu", "leaky_relu", "hard_sigmoid", "hard_swish", "softplus", "softsign",
    "thresholded_relu", "prelu",
})  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The machine that code is compiled for."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]  # sorted
    vector_bits: int
    vector_registers: int
    caches: tuple[int, ...]  # bytes of L1 data, L2, L3, as one core can use them
    cores: int
    max_alignment: int
    machine: Machine = GENERIC  # core, clock and bandwidths, for the cost model
    memories: tuple[MemoryScope, ...] = CPU_MEMORIES
    keeps: frozenset[str] = CPU_KEEPS
    printer: str = "llvm"  # whose `emit` templates of instructions apply (loops/emit.py)

    def has(self, feature: str) -> bool:
        """Does the target have the feature (LLVM's name)?"""
        return feature in self.features

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector register; at least one."""
        return max(1, self.vector_bits // (8 * dtype.storage_bytes))

    @property
    def has_one_lane(self) -> bool:
        """No vectors: even a register of the narrowest elements holds one."""
        return self.vector_bits <= 8

    @property
    def feature_string(self) -> str:
        """The features as LLVM's target machine takes them."""
        return ",".join("+" + feature for feature in self.features)

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.partition("-")[0]


@dataclass(frozen=True)
class HostFeatures:
    """The host, as a back end detects it."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    cores: int = 1
    caches: tuple[int, ...] = ()
    machine: Machine = GENERIC


# (feature, vector register bits), widest first.
VECTOR_BITS = (
    ("avx512f", 512), ("avx", 256), ("sse2", 128), ("neon", 128), ("simd128", 128),
)  # fmt: skip
# Features with a fused multiply-add.
FMA = ("fma", "neon", "fp-armv8")
# Features with 32 vector registers; others have 16.
MANY_REGISTERS = ("avx512f", "neon")
DEFAULT_CACHES = (32 << 10, 512 << 10, 4 << 20)  # bytes of L1, L2, L3 if not detected; heuristic
DEFAULT_CORES = 4  # of a named target; the code runs on any number of threads; heuristic

_V2 = (
    "cmov", "cx16", "cx8", "fxsr", "mmx", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1",
    "sse4.2", "ssse3", "x87",
)  # fmt: skip
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_LINUX_X86 = "x86_64-unknown-linux-gnu"

# name → triple, LLVM's CPU, features. "cpu" is the host, described by HostFeatures.
KNOWN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "x86-64-v2": (_LINUX_X86, "x86-64-v2", _V2),
    "x86-64-v3": (_LINUX_X86, "x86-64-v3", _V3),
    "x86-64-v4": (_LINUX_X86, "x86-64-v4", _V4),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", ("fp-armv8", "neon")),
    "wasm32": ("wasm32-unknown-unknown", "generic", ("bulk-memory", "simd128")),
}


def parse(
    text: str, host_features: HostFeatures | None = None, others: Callable[[], list[str]] = list
) -> Target:
    """The target called `text`; "cpu" is the host that `host_features` describes. `others` lists
    the targets of other back ends, for an error.

    "x86-64-v3+avx512f+no-bmi2" adds and removes features.
    """
    name, added, removed = _split(text)
    if name == "cpu":
        if host_features is None:
            raise IngotError(
                "bad-target",
                "the target 'cpu' is the host, which only a back end can describe",
                hint="pass host_features, or name one of " + ", ".join(KNOWN),
            )
        seen = host_features
        base = describe(text, seen.triple, seen.cpu, seen.features, seen.cores, seen.caches)
        base = replace(base, machine=seen.machine)
    elif name in KNOWN:
        base = describe(text, *KNOWN[name], cores=DEFAULT_CORES)
    else:
        raise _unknown(name, others())
    return with_features(base, added, removed) if added or removed else base


def describe(
    name: str,
    triple: str,
    cpu: str,
    features: Iterable[str],
    cores: int = 1,
    caches: tuple[int, ...] = (),
) -> Target:
    """A target; vector width and register count follow from its features."""
    present = tuple(sorted(set(features)))
    bits = vector_bits(present)
    return Target(
        name=name,
        triple=triple,
        cpu=cpu,
        features=present,
        vector_bits=bits,
        vector_registers=32 if any(f in present for f in MANY_REGISTERS) else 16,
        caches=caches or DEFAULT_CACHES,
        cores=cores,
        max_alignment=max(64, bits // 8),
    )


def vector_bits(features: Iterable[str]) -> int:
    """Bits of a vector register; 64 (one scalar) without a vector feature."""
    present = set(features)
    return next((bits for feature, bits in VECTOR_BITS if feature in present), 64)


def with_features(target: Target, added: Iterable[str] = (), removed: Iterable[str] = ()) -> Target:
    """The target with features added and removed; its vector width follows."""
    features = (set(target.features) | set(added)) - set(removed)
    changed = describe(
        target.name, target.triple, target.cpu, features, target.cores, target.caches
    )
    return replace(changed, machine=target.machine, memories=target.memories, keeps=target.keeps)


def _split(text: str) -> tuple[str, list[str], list[str]]:
    """ "x86-64-v3+avx512f" → the name, features added, features removed.

    Names contain dashes, so features are removed with "+no-".
    """
    name, *changes = text.strip().split("+")
    removed = [c.removeprefix("no-") for c in changes if c.startswith("no-")]
    return name, [c for c in changes if not c.startswith("no-")], removed


def _unknown(name: str, others: list[str]) -> IngotError:
    names = list(dict.fromkeys(["cpu", *KNOWN, *others]))
    near = difflib.get_close_matches(name.lower(), names, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return IngotError(
        "bad-target", f"no target is called {name!r}", hint=hint + "known: " + ", ".join(names)
    )
