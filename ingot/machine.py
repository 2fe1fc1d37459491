"""Machines as data: what a core executes per cycle and what its memories deliver.

In: the processor's description as the operating system gives it. Out: a row of `MACHINES`, which
the cost model reads through `target.machine`. Named targets (x86-64-v3, aarch64 …) are a generic
machine. `ingot doctor --measure` measures clock and bandwidths of this machine, and the target
`cpu` then has them in place of its row's (runtime/cpu/measured.py).

Port counts, latencies and cache bandwidths are from the vendors' optimisation guides and the tables
of agner.org and uops.info; `issue_width` is lower than a core's decode width, since two hardware
threads share it on most servers. Bandwidths of memory are those of small cloud machines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Core:
    """What one core starts per cycle, for vectors of full width."""

    fma_ports: int  # multiply-adds per cycle
    load_ports: int  # vector loads per cycle
    issue_width: int  # instructions per cycle, sustained
    fma_latency_cycles: float  # 4 on all cores below; 5 % added for interference, measured
    line_bytes: int  # of a cache line
    datapath_bits: int = 512  # of a vector that a port takes per cycle; wider ones take several
    fma_instructions: int = 1  # of one multiply-add; 2 where the sum is added by another (pmaddwd)


@dataclass(frozen=True)
class Machine:
    """A core, its clock, and the bandwidth of each memory level."""

    name: str
    core: Core
    clock_ghz: float  # sustained under vector load
    cache_bytes_per_cycle: tuple[float, ...]  # of one core, L1 to the last level, reads and writes
    core_memory_bytes_per_ns: float  # from main memory, one core alone
    memory_bytes_per_ns: float  # from main memory, all cores together
    typical_flops_per_ns: float = 32.0  # of one core in mixed code, for thresholds; heuristic

    def cache_bytes_per_ns(self, level: int) -> float:
        """Of one core; levels beyond those known are as fast as the last."""
        rates = self.cache_bytes_per_cycle
        return rates[min(level, len(rates) - 1)] * self.clock_ghz


_COMMON_CORE = Core(
    fma_ports=2, load_ports=2, issue_width=4, fma_latency_cycles=4.2, line_bytes=64
)  # fmt: skip
GENERIC = Machine("generic", _COMMON_CORE, 3.0, (64, 32, 16), 8.0, 20.0)
MACHINES: tuple[tuple[str, Machine], ...] = (  # a pattern of the processor's fields → the machine
    ("AuthenticAMD; cpu family : 25", replace(  # Zen 3 and 4, which halves vectors of 512 bits
        GENERIC, name="zen", core=replace(_COMMON_CORE, datapath_bits=256),
    )),
    ("AuthenticAMD", replace(GENERIC, name="zen")),
    ("GenuineIntel", replace(GENERIC, name="intel-core", cache_bytes_per_cycle=(128, 48, 16))),
    ("CPU implementer : 0x41", replace(
        GENERIC, name="neoverse", cache_bytes_per_cycle=(32, 32, 16),
    )),
    ("CPU implementer : 0x61", replace(
        GENERIC, name="apple", cache_bytes_per_cycle=(48, 32, 16), core_memory_bytes_per_ns=50.0,
        memory_bytes_per_ns=100.0,
        core=replace(_COMMON_CORE, fma_ports=4, load_ports=3, issue_width=8, line_bytes=128),
    )),
)  # fmt: skip


def of_processor(text: str) -> Machine:
    """The machine of a processor, by the operating system's description of it."""
    return next((machine for pattern, machine in MACHINES if pattern in text), GENERIC)
