"""The table of `exe.report()`. In: rows that the back end filled. Out: plain text.

A row is one launch: the kernel, the model's nodes it came from, its parallel extent and vector
lanes, FLOPs and bytes, predicted and measured time, and why it is serial or scalar, if it is.
Read by executable.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.support.text import columns

HEAD = ("kernel", "family", "parallel", "lanes", "tile", "FLOPs", "bytes", "predicted µs",
        "measured µs", "not vectorised or parallel", "plan", "layouts", "origin")  # fmt: skip

SHOWN = 0.02  # fraction of the compile time from which a stage is shown


@dataclass(frozen=True)
class MachineModel:
    """The roofline of one core of the target (cost/contraction.py). `levels` are L1, L2 … and main
    memory: (bytes, bytes moved per ns). Memory has bytes None; all cores share its bandwidth."""

    flops_per_ns: float  # per vector lane
    lanes: int  # f32 lanes of a vector register
    levels: tuple[tuple[int | None, float], ...]

    def time_us(self, flops: int, moved_bytes: int, lanes: int, cores: int) -> float:
        """The longer of computing and of moving the arrays once, from the nearest level that holds
        each core's part of them."""
        compute_ns = flops / (self.flops_per_ns * min(lanes, self.lanes) * cores)
        bytes_per_core = moved_bytes / cores
        size, rate = next(x for x in self.levels if x[0] is None or bytes_per_core <= x[0])
        move_ns = moved_bytes / (rate if size is None else rate * cores)
        return max(compute_ns, move_ns) / 1e3


@dataclass(frozen=True)
class LaunchRow:
    """Sizes are integer expressions over the package's symbols; None: unknown."""

    kernel: str
    origin: str  # the model's nodes, by their names in the model
    family: str  # of the anchor operator; selects the schedule rule
    parallel_extent: arith.Expr  # iterations of the parallel loop; 1: serial
    lanes: int  # of its widest vector access; 1: scalar
    flops: arith.Expr | None  # an estimate: counts every guarded statement
    arg_bytes: arith.Expr  # size of its buffer arguments
    why_serial: str = ""
    why_scalar: str = ""
    tile: str = ""  # register tile of a GEMM or convolution: rows x columns
    plan: str = ""  # what the cost model decided for its contractions (cost/plan.py)
    remarks: tuple[str, ...] = ()  # steps of its schedule that were refused, and why
    layouts: str = ""  # shapes of its buffers in memory order: read -> written
    why_float: str = ""  # why a contraction of quantised tensors is computed in float

    @property
    def is_serial(self) -> bool:
        return arith.is_const(self.parallel_extent, 1)

    @property
    def why(self) -> str:
        reasons = (("serial", self.why_serial), ("scalar", self.why_scalar))
        return "; ".join(f"{what}: {why}" for what, why in reasons if why)

    def predicted_us(
        self, model: MachineModel, threads: int, sizes: Mapping[str, int]
    ) -> float | None:
        """Predicted time on `threads` threads; None if a size is unknown."""
        exprs = (self.flops, self.arg_bytes, self.parallel_extent)
        flops, moved, extent = (number(e, sizes) for e in exprs)
        if flops is None or moved is None or extent is None:
            return None
        return model.time_us(flops, moved, self.lanes, max(1, min(threads, extent)))

    def cells(self, predicted_us: float | None, measured_us: float | None) -> tuple[str, ...]:
        return (
            self.kernel,
            self.family or "-",
            "serial" if self.is_serial else f"{self.parallel_extent} iterations",
            str(self.lanes) if self.lanes > 1 else "scalar",
            self.tile or "-",
            "?" if self.flops is None else str(self.flops),
            str(self.arg_bytes),
            _short(predicted_us),
            _short(measured_us),
            self.why or "-",
            self.plan or "-",
            self.layouts or "-",
            self.origin,
        )

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells(None, None) if cell)


def lines(
    rows: Iterable[LaunchRow],
    machine_model: MachineModel | None,
    threads: int = 1,
    sizes: Mapping[str, int] | None = None,
    measured_us: Sequence[float] = (),
) -> list[tuple[str, ...]]:
    """The cells of each launch, in program order."""
    found = []
    for i, row in enumerate(rows):
        predicted = row.predicted_us(machine_model, threads, sizes or {}) if machine_model else None
        found.append(row.cells(predicted, measured_us[i] if measured_us else None))
    return found


def table(cells: Iterable[tuple[str, ...]]) -> str:
    """The rows of cells below the column names."""
    return "\n".join(columns([HEAD, *cells]))


def refused_steps(rows: Iterable[LaunchRow]) -> list[str]:
    """A line for each step of a schedule that was refused; equal kernels have one."""
    found = (f"{row.kernel}: {remark}" for row in rows for remark in row.remarks)
    return [f"refused step in {line}" for line in dict.fromkeys(found)]


def in_float(rows: Iterable[LaunchRow]) -> list[str]:
    """A line for each group that computes a contraction of quantised tensors in float."""
    found = (f"in float: {row.origin}: {row.why_float}" for row in rows if row.why_float)
    return list(dict.fromkeys(found))


def compile_times(times_s: Mapping[str, float]) -> list[str]:
    """A line with the compile time of the stages that took SHOWN of it; none after a load."""
    total = sum(times_s.values())
    if len(times_s) < 2 or not total:
        return []
    long = {stage: time_s for stage, time_s in times_s.items() if time_s >= SHOWN * total}
    rest = len(times_s) - len(long)
    shown = [f"{stage} {time_s:.2f}" for stage, time_s in long.items()]
    shown += [f"{rest} other stages {total - sum(long.values()):.2f}"] if rest else []
    return [f"compile time {total:.2f} s: {', '.join(shown)}"]


def number(size: arith.Expr | None, sizes: Mapping[str, int]) -> int | None:
    """The value of an expression at these sizes; None if one of its symbols is missing."""
    if size is None or arith.free_vars(size) - sizes.keys():
        return None
    return arith.evaluate(size, sizes)


def _short(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.2f}" if time_us < 10 else f"{time_us:.0f}"
