"""The register tile of a GEMM, and its cycles per iteration of k on a core.

The register tile is the accumulator block of a GEMM microkernel (Goto/BLIS: MR x NR): `rows` rows
times `vectors` vectors. One iteration of the reduction loop k loads `vectors` vectors of the packed
operand, broadcasts `rows` elements of the other and issues rows · vectors FMAs:

    cycles per k = max(rows · vectors / fma_ports, (rows + vectors) / load_ports,
                       fma_latency_cycles, instructions / issue_width)

with the core's figures (machine.py).

The latency bounds it because each accumulator depends on its own last value. Instructions are
loads, FMAs and, where k is not unrolled, the loop's own. A depthwise convolution has no operand
reuse along the vectors: each accumulator loads its own vector, and the rows share the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.machine import Core

LOOP_OVERHEAD_INSTRUCTIONS = 2  # per iteration that is not unrolled: add, compare-and-jump
MAX_UNROLL_ROWS = 8  # rows of a tile with k unrolled: each row needs an address register


@dataclass(frozen=True)
class Tile:
    """A register tile: `rows` times `vectors` accumulators of `lanes` elements. `is_depthwise`: no
    operand reuse, each accumulator loads its own vector."""

    rows: int
    vectors: int
    lanes: int
    is_depthwise: bool = False

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def cycles_per_k(self, core: Core) -> float:
        """Cycles of one iteration of the reduction loop."""
        fmas = self.rows * self.vectors
        loads = (fmas if self.is_depthwise else self.rows) + self.vectors
        cycles = max(fmas / core.fma_ports, loads / core.load_ports, core.fma_latency_cycles)
        return (
            cycles
            if self.is_depthwise
            else max(cycles, self._instructions(core) / core.issue_width)
        )

    def _instructions(self, core: Core) -> int:
        loop = LOOP_OVERHEAD_INSTRUCTIONS if self.rows > MAX_UNROLL_ROWS else 0
        fmas = self.rows * self.vectors * core.fma_instructions
        return fmas + self.rows + self.vectors + loop
