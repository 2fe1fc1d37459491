"""`ingot doctor --measure`: the clock and the bandwidths of this machine, in a second or two.

In: the host. Out: `Rates`, which runtime/cpu/measured.py stores. The probes are those of a profile
(runtime/cpu/peak.py), compiled for the host. A cycle here is the time of `fma_ports` FMAs of full
width, since the cost model counts in those: a core that splits wide vectors has a lower clock.
"""

from __future__ import annotations

from ingot import backends, dtypes
from ingot.codegen import llvm_object
from ingot.runtime.cpu import peak
from ingot.runtime.cpu.measured import Rates
from ingot.runtime.cpu.module import Probe
from ingot.runtime.cpu.native.probe import flops_per_iteration, probe_text
from ingot.target import FMA, Target


def measure() -> Rates:
    target = backends.find("cpu").target("cpu")
    probe = compile_probe(target)
    alone = peak.measure(probe, 1)
    clock_ghz = alone.flops_per_us / 1e3 / _flops_per_cycle(target)
    one_core, all_cores = (peak.read_rate(probe, n) / 1e3 for n in (1, target.cores))
    return Rates(
        _rounded(clock_ghz),
        tuple(
            _rounded(level.bytes_per_us / 1e3 / clock_ghz)
            for level in alone.levels
            if level.bytes is not None
        ),
        _rounded(one_core),
        _rounded(max(one_core, all_cores)),
    )


def compile_probe(target: Target) -> Probe:
    text, machine = probe_text(target), (target.triple, target.cpu, target.feature_string)
    code = llvm_object.compile_text(text, *machine, 3)
    return Probe(code, flops_per_iteration(target), target.caches)


def _flops_per_cycle(target: Target) -> int:
    """Of one core, as cost/contraction.py's machine model counts them."""
    per_lane = 2 if any(map(target.has, FMA)) else 1
    return target.machine.core.fma_ports * per_lane * target.lanes(dtypes.f32)


def _rounded(rate: float) -> float:
    """Three digits: the rest is noise."""
    return float(f"{rate:.3g}")
