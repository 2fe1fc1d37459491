"""An executable and a profile in a notebook. In: the objects. Out: HTML (support/html.py).
Loaded by name when a notebook asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ingot.arith import expr as arith
from ingot.runtime.ports import PortInfo
from ingot.runtime.profile import Profile, ProfileRow
from ingot.runtime.report import LaunchRow
from ingot.support.html import Html, bar, details, page, table, text
from ingot.support.origins import layer_names
from ingot.support.text import with_unit

if TYPE_CHECKING:
    from ingot.runtime.executable import Executable


def executable_html(exe: Executable) -> str:
    package, seconds = exe.package, sum(exe.times_s.values())
    how = "compiled" if len(exe.times_s) > 1 else next(iter(exe.times_s), "made")
    made = {"cache": "from the cache", "load": "loaded"}.get(how, how)
    about = [
        f"{len(package.kernel_names)} kernels, {len(package.report)} launches",
        "closed" if exe.is_closed else f"up to {exe.threads} thread{'s' * (exe.threads > 1)}",
        f"weights {with_unit(package.constants.nbytes, 'B')}",
        *([f"{made} in {seconds:.2f} s"] if seconds else []),
        *package.notes,
    ]
    offsets = {name for name, _ in package.offsets}
    memory = [(name, _size(size, offsets)) for name, size in exe.memory.items()]
    return page(
        f"Executable {package.name}",
        " · ".join(about),
        ports_table(exe.inputs, exe.outputs),
        details("memory", table(("", "bytes"), memory, code=(1,))),
        details("kernels", _kernels(package.report)),
    )


def ports_table(inputs: Iterable[PortInfo], outputs: Iterable[PortInfo]) -> Html:
    rows = [
        (what, port.name, str(port).removeprefix(f"{port.name}: "))
        for what, ports in (("input", inputs), ("output", outputs))
        for port in ports
    ]
    return table(("", "name", "type"), rows, code=(1, 2))


def _size(size: int | arith.Expr, offsets: set[str]) -> str:
    """Offsets in an arena are no names that a caller knows."""
    if isinstance(size, int):
        return with_unit(size, "B")
    return "exe.memory_for(…) has it" if arith.free_vars(size) & offsets else str(size)


def _kernels(rows: Iterable[LaunchRow]) -> Html:
    head = ("layers", "kernel", "family", "parallel", "lanes", "plan", "not vectorised or parallel")
    cells = [
        (layer_names(row.origin), row.kernel, row.family, str(row.parallel_extent), row.lanes,
         row.plan, row.why)
        for row in rows
    ]  # fmt: skip
    return table(head, cells, numbers=(4,), code=(1,))


def profile_html(profile: Profile) -> str:
    slowest = max((row.time_us for row in profile.rows), default=0.0)
    head = ("layers", "time µs", "of run", "wait µs", "GFLOP/s", "GB/s", "of roofline", "kernel")
    rows = [_profile_cells(row, profile.run_us, slowest) for row in profile.rows]
    return page(
        "Profile",
        profile.summary,
        table(head, rows, numbers=(2, 3, 4, 5, 6), code=(7,)),
        Html(f"<div class='about'>{text(profile.peak)}</div>"),
    )


def _profile_cells(row: ProfileRow, run_us: float, slowest_us: float) -> tuple[object, ...]:
    rate = row.gflops
    return (
        layer_names(row.origin),
        bar(row.time_us / slowest_us if slowest_us else 0.0, f"{row.time_us:.1f}"),
        f"{100 * row.time_us / run_us:.1f} %",
        f"{row.wait_us:.1f}",
        f"{rate:.1f}" if rate else "-",
        f"{row.gbytes:.1f}",
        f"{100 * row.roofline_fraction:.0f} % {row.bound}",
        row.kernel,
    )
