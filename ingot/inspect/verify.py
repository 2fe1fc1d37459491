"""`ingot.verify`: which node and which stage of the compiler make a model's outputs wrong.

In: a model and its inputs. Out: a `Report`, and a folder that shows the fault alone. The outputs of
compiled code are compared with those of the graph interpreter in float64. If rounding does not
explain a difference, the model is cut down to the first nodes that go wrong on their own, then each
stage's result is interpreted to find the first that is wrong. Called by cli/verify.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingot import frontends, pipeline
from ingot.graph.ir import Graph, Node
from ingot.graph.verify import describe
from ingot.inspect import AGAINST, INTERPRETER, READS
from ingot.inspect.case import Case, Outcome, Setting, examine, plain
from ingot.inspect.difference import Difference
from ingot.inspect.imported import ImportCheck, check_import
from ingot.inspect.reproducer import import_difference, rerun, save_import, save_reproducer
from ingot.inspect.shrink import fewer_nodes, smaller_sizes
from ingot.inspect.stages import Finding, first_wrong_stage
from ingot.passes.edit import rename_values
from ingot.shapes import named_sizes
from ingot.support import lazy
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError
from ingot.support.options import Options, using

IMPORT = "import"
Step = Callable[[str], None]  # is told what happens now
_PLAIN_KEY = "random_key"  # the key of random numbers as an input that a caller gives
_ATTEMPTS = 3  # to see an error that does not show in each run
_MANY_ELEMENTS = 20_000  # of all values, from here on smaller sizes are tried first; heuristic


@dataclass(frozen=True)
class Report:
    """What `verify` found. If nothing is wrong, only `outputs` is there."""

    outputs: tuple[Difference, ...]  # of the whole model
    error: str = ""  # with which compilation or the run failed
    is_unstable: bool = False  # runs on the same inputs differ
    node: str = ""  # the user's node whose value is the first wrong one
    nodes: tuple[str, ...] = ()  # all nodes that are needed to see it
    value: Difference | None = None  # that value, computed from right operands
    stage: str = ""  # the first stage whose result is wrong
    until: str = ""  # a later one, if those between could not be told apart
    kernel: str = ""
    fault: str = ""  # what a verifier says
    reproducer: Path | None = None  # the script
    reproduces: bool = False  # it was run, and failed as it should
    compared: int = 0  # values of the import that another runtime was asked about

    @property
    def is_right(self) -> bool:
        """Whether compilation and runs succeeded, and rounding explains all differences."""
        is_other = bool(self.error or self.stage or self.is_unstable)
        return not is_other and not any(d.is_wrong for d in self.outputs)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """What was found, for a person."""
        lines = [f"{d.name}: {'WRONG' if d.is_wrong else 'right'}: {d}" for d in self.outputs]
        lines += [f"failed: {self.error}"] if self.error else []
        if self.compared and self.stage != IMPORT:
            lines.append(f"import: {self.compared} values agree with the other runtime's")
        if self.is_unstable:
            why = "a race between threads, or memory that nothing wrote"
            lines.append(f"runs on the same inputs differ: {why}")
        if self.stage:
            lines += ["", *self._found()]
        elif not self.is_right:
            lines += ["", "no smaller part and no stage goes wrong on its own"]
        return lines

    def _found(self) -> list[str]:
        stages = self.stage if self.until in ("", self.stage) else f"{self.stage} to {self.until}"
        rows = [("node", self.node), ("stage", stages)]
        if self.value is not None:
            rows.append(("value", f"{self.value.name}: {self.value}"))
        rows += [("kernel", self.kernel)] if self.kernel else []
        rows += [("needs", "; ".join(self.nodes))] if len(self.nodes) > 1 else []
        rows += [("because", self.fault)] if self.fault else []
        if self.reproducer is not None:
            alone = "exit code 1" if self.reproduces else "it does NOT fail on its own"
            rows.append(("see", f"python {self.reproducer}   ({alone})"))
        return [f"{label:<8} {text}" for label, text in rows]


def verify(
    model: Any,
    feeds: Mapping[str, Any],
    target: str = "cpu",
    threads: int | None = None,
    *,
    shapes: Mapping[str, Any] | None = None,
    kernels: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    against: str = INTERPRETER,
    save: str | Path | None = None,
    options: Options | Mapping[str, Any] | None = None,
    step: Step | None = None,
) -> Report:
    """Compare a model's compiled outputs with exact ones; find the stage and node at fault.

    model, target, threads, shapes, kernels, jobs, options   as `ingot.compile` takes them
    feeds    the inputs by name
    against  "onnxruntime" or "torch": first compare with it what import made of each node
    save     folder of the reproducer; None: none is written
    step     a function that is told each step, for a progress bar
    """
    chosen = Options.of(options)
    setting = Setting(
        replace(chosen, verify=True, cache_dir="off", work_per_thread_us=0.0, dump_dir="",
                progress=False),
        target, threads, jobs,
    )  # fmt: skip
    folder = None if save is None else Path(save)
    with using(setting.options):  # the runtime reads some when it loads code
        return _verify(model, feeds, setting, shapes, kernels, against, folder, step or _silent)


def _silent(what: str) -> None:
    pass


def _verify(
    model: Any, feeds: Mapping[str, Any], setting: Setting, shapes: Mapping[str, Any] | None,
    kernels: Mapping[str, Any] | None, against: str, folder: Path | None, step: Step,
) -> Report:  # fmt: skip
    step("importing")
    whole = import_case(model, feeds, setting, shapes, kernels)
    compared = 0
    if against != INTERPRETER:
        _check_format(model, against)
        step(f"running {against}")
        theirs = lazy.load(f"oracle.{against}")(model, dict(feeds))
        checked = check_import(whole, theirs)
        compared = checked.compared
        if checked.node is not None:
            return _wrong_import(model, checked, theirs, folder)
    step("compiling")
    outcome = examine(whole, setting)
    if outcome.is_wrong:
        found = _search(whole, outcome, setting, folder, step)
    else:
        found = _report(outcome)
    return replace(found, compared=compared)


def _check_format(model: Any, against: str) -> None:
    if against not in READS:
        what = f"against={against!r}"
        raise IngotError("bad-option", what, hint=f"one of {', '.join(AGAINST)}")
    if frontends.find(model).name != READS[against]:
        what = f"{against} cannot read this model"
        raise IngotError("bad-option", what, hint=f"--against {INTERPRETER}")


def _wrong_import(
    model: Any, checked: ImportCheck, theirs: Mapping[str, np.ndarray], folder: Path | None
) -> Report:
    node, value = checked.node, checked.value
    assert node is not None and value is not None
    found = Report(
        (), node=_name(node), nodes=(_name(node),), value=value, stage=IMPORT,
        compared=checked.compared,
    )  # fmt: skip
    if folder is None or frontends.find(model).name != "onnx":
        return found
    small = lazy.load("oracle.one_node")(model, value.name, theirs)
    if small is None:
        return found
    about = f"Ingot's import gives {_name(node)} another meaning than ONNX Runtime."
    script = save_import(folder, small, value.name, theirs, about)
    again = import_difference(folder, value.name)
    return replace(found, reproducer=script, reproduces=again is not None)


def import_case(
    model: Any, feeds: Mapping[str, Any], setting: Setting, shapes: Mapping[str, Any] | None,
    kernels: Mapping[str, Any] | None = None,
) -> Case:  # fmt: skip
    """The model as a graph that takes and gives arrays only."""
    hooks = lazy.load("kernels.hooks").hooks(kernels) if kernels else {}
    session = pipeline.open_session(
        setting.target,
        shapes=named_sizes(model, dict(shapes or {})),
        kernels=hooks,
        options=setting.options,
    )
    obstacle = session.backend.why_not_here(session.target)
    if obstacle:
        what = f"code for {setting.target!r} cannot run here"
        raise IngotError("bad-target", what, why=obstacle)
    graph = _with_key(plain(pipeline.run_stages(model, session, stop_after="import")))
    given = {**session.store.initial, _PLAIN_KEY: np.zeros(2, np.uint64), **feeds}
    known = [v.name for v in graph.inputs]
    for what, names in (
        ("no array is given for", [name for name in known if name not in given]),
        ("no input is called", [name for name in feeds if name not in known]),
    ):
        if names:
            hint = f"the inputs are {', '.join(known)}"
            raise IngotError("bad-input", f"{what} {', '.join(names)}", hint=hint)
    arrays = {v.name: np.asarray(given[v.name]) for v in graph.inputs}
    return Case(graph, session.store, arrays)


def _with_key(graph: Graph) -> Graph:
    """The graph with a plain name for the key of random numbers, which the runtime else gives."""
    if all(v.name != RANDOM_KEY for v in graph.inputs):
        return graph
    key = {v.name: replace(v, name=_PLAIN_KEY) for v in graph.inputs if v.name == RANDOM_KEY}
    inputs = tuple(key.get(v.name, v) for v in graph.inputs)
    return replace(graph, inputs=inputs, nodes=tuple(rename_values(n, key) for n in graph.nodes))


def _search(
    whole: Case, outcome: Outcome, setting: Setting, folder: Path | None, step: Step
) -> Report:
    def is_wrong(case: Case) -> bool:
        count = len(case.graph.nodes)
        step(f"compiling {count} node{'s' * (count > 1)}")
        return examine(case, setting).is_wrong

    case = fewer_nodes(whole, is_wrong)
    if sum(array.size for array in case.values.values()) > _MANY_ELEMENTS:
        case = smaller_sizes(case, is_wrong)
    step("interpreting the stages")
    tries = (first_wrong_stage(case, setting) for _ in range(_ATTEMPTS))
    finding = next((found for found in tries if found is not None), None)
    found = _report(outcome, case, finding)
    if finding is None or folder is None:
        return found
    step("writing the reproducer")
    about = f"Ingot's stage {finding.stage} goes wrong for {found.node or 'a graph'}."
    script = save_reproducer(folder, finding, setting, about)
    again = rerun(
        folder, finding.stage, finding.until, setting.target, setting.threads, setting.options
    )
    return replace(found, reproducer=script, reproduces=again.is_wrong)


def _report(outcome: Outcome, case: Case | None = None, finding: Finding | None = None) -> Report:
    error = "" if outcome.failure is None else str(outcome.failure)
    found = Report(outcome.differences, error, outcome.is_unstable)
    if case is None or finding is None:
        return found
    computing = [n for n in case.graph.nodes if n.op != "constant"]
    launch, failure = finding.launch, finding.outcome.failure
    return replace(
        found,
        is_unstable=outcome.is_unstable or finding.outcome.is_unstable,
        node=_guilty(case.graph, computing, finding),
        nodes=tuple(dict.fromkeys(map(_name, computing))),
        value=finding.outcome.first,
        stage=finding.stage,
        until=finding.until,
        kernel="" if launch is None else launch.kernel,
        fault="" if failure is None else str(failure),
    )


def _guilty(graph: Graph, computing: list[Node], finding: Finding) -> str:
    """The node that makes the first wrong value; if an error has none, that of its launch."""
    value, launch = finding.outcome.first, finding.launch
    producer = graph.producers().get(value.name) if value is not None else None
    if launch is not None and launch.origin:
        names = launch.origin.split("; ")
        return _name(producer) if producer and producer.origin in names else launch.origin
    return _name(producer or computing[-1])


def _name(node: Node) -> str:
    return node.origin or describe(node)
