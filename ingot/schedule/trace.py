"""The trace of a schedule: every step, as data. In: steps that succeeded. Out: Python text or JSON.

A handle appears in a trace as a variable name (`b0`, `l3`); numbers, strings and None are literals,
and an instruction is stored with its whole definition. `text()` is the Python source of the
schedule; JSON round-trips. Queries (`block`, `loops`) are steps too, but the text omits those whose
results are not used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ingot.loops.ir import Instruction
from ingot.schedule.handles import BlockRef, Ref
from ingot.schedule.instructions import from_data, to_data

QUERIES = ("block", "blocks", "loops")


@dataclass(frozen=True)
class HandleVar:
    """A handle's name in the trace."""

    name: str


@dataclass(frozen=True)
class Step:
    """outs = sch.op(*args, **options); an option that is the default is not recorded."""

    op: str
    args: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()
    outs: tuple[str, ...] = ()
    unpack: bool = False

    def text(self) -> str:
        words = [_show(a) for a in self.args] + [f"{k}={_show(v)}" for k, v in self.options]
        call = f"sch.{self.op}({', '.join(words)})"
        if not self.outs:
            return call
        comma = "," if self.unpack and len(self.outs) == 1 else ""
        return f"{', '.join(self.outs)}{comma} = {call}"

    def used(self) -> set[str]:
        return {a.name for a in self.args if isinstance(a, HandleVar)}


@dataclass
class Trace:
    """Steps in order; `name_of` assigns each handle one variable name for the whole trace."""

    steps: list[Step] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict, compare=False, repr=False)

    def copy(self) -> Trace:
        return Trace(list(self.steps), dict(self.names))

    def name_of(self, ref: Ref) -> str:
        if ref.uid not in self.names:
            prefix = "b" if isinstance(ref, BlockRef) else "l"
            count = sum(name.startswith(prefix) for name in self.names.values())
            self.names[ref.uid] = f"{prefix}{count}"
        return self.names[ref.uid]

    def record_query(self, op: str, args: tuple, outs: Any) -> None:
        """Append a query, unless every handle it returns has a name already."""
        refs = outs if isinstance(outs, list) else [outs]
        if any(ref.uid not in self.names for ref in refs):
            self.record(op, args, {}, outs)

    def record(self, op: str, args: tuple, options: dict[str, Any], outs: Any) -> Step:
        """Append a step; `outs` is a handle, a list of handles or None."""
        refs = outs if isinstance(outs, list) else [] if outs is None else [outs]
        step = Step(
            op,
            tuple(self._data(a) for a in args),
            tuple(sorted(options.items())),
            tuple(self.name_of(ref) for ref in refs),
            isinstance(outs, list),
        )
        self.steps.append(step)
        return step

    def _data(self, value: Any) -> Any:
        return HandleVar(self.name_of(value)) if isinstance(value, Ref) else value

    def live_steps(self) -> list[Step]:
        """The steps without the queries whose results no later step uses."""
        wanted: set[str] = set()
        kept: list[Step] = []
        for step in reversed(self.steps):
            if step.op not in QUERIES or wanted & set(step.outs):
                wanted = (wanted - set(step.outs)) | step.used()
                kept.append(step)
        return kept[::-1]

    def text(self) -> str:
        """Python source that rebuilds this schedule from `sch = Schedule(kernel)`."""
        return "\n".join(step.text() for step in self.live_steps())

    def to_json(self) -> str:
        return json.dumps([_dump(step) for step in self.steps])

    @staticmethod
    def from_json(text: str) -> Trace:
        return Trace([_load(row) for row in json.loads(text)])


def _show(value: Any) -> str:
    if isinstance(value, Instruction):
        data = to_data(value)
        emit = f", emit={data['emit']!r}" if data["emit"] else ""
        return f"instruction({data['name']!r}, {data['meaning']!r}{emit})"
    return value.name if isinstance(value, HandleVar) else repr(value)


def _dump_arg(value: Any) -> Any:
    if isinstance(value, Instruction):
        return {"instruction": to_data(value)}
    return {"var": value.name} if isinstance(value, HandleVar) else value


def _load_arg(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return HandleVar(value["var"]) if "var" in value else from_data(value["instruction"])


def _dump(step: Step) -> dict[str, Any]:
    args = [_dump_arg(a) for a in step.args]
    return {
        "op": step.op,
        "args": args,
        "options": dict(step.options),
        "outs": list(step.outs),
        "unpack": step.unpack,
    }


def _load(row: dict[str, Any]) -> Step:
    args = tuple(_load_arg(a) for a in row["args"])
    options = tuple(sorted(row["options"].items()))
    return Step(row["op"], args, options, tuple(row["outs"]), row["unpack"])
