"""The table of stages: its order, stops and starts, texts, dumps and checks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ingot import api, pipeline
from ingot.backends import cpu
from ingot.graph.ir import Graph
from ingot.loops import ir as loops_ir
from ingot.program.ir import Program
from ingot.program.tables import tables
from ingot.runtime.package import Package
from ingot.support import options
from ingot.support.dump import Dump
from ingot.support.errors import IngotError
from tests.refusal import refused
from tests.small import small_model

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
KINDS = {"graph": Graph, "program": Program, "package": Package}
STAGES = pipeline.open_session("cpu").stages
NAMES = tuple(stage.name for stage in STAGES)
TEXTUAL = [stage.name for stage in STAGES if stage.gives in ("graph", "program")]
PLANNED = ("barriers", "chunk_launches")
RESTARTS = [stage.name for stage in STAGES if stage.takes != "model"]


def session(dump: Dump | None = None, target: str = "cpu") -> pipeline.Session:
    return api.make_session(target, shapes={"batch": 2}, jobs=1, dump=dump)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The text after each stage that has one, for the digits model; which kernels there are
    depends on the target."""
    record = Dump(keep=True)
    pipeline.run_stages(DIGITS, session(record, "x86-64-v3"), stop_after=TEXTUAL[-1])
    return {entry.stage: entry.text for entry in record.entries}


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, str], pipeline.Session, Package]:
    """The small model's texts, its session (for the constants) and its package."""
    record = Dump(keep=True)
    made = session(record)
    package = pipeline.run_stages(small_model(), made)
    return {entry.stage: entry.text for entry in record.entries}, made, package


def before(name: str) -> str:
    return NAMES[NAMES.index(name) - 1]


def restart(name: str, texts: dict[str, str], store: Any, stop_after: str) -> Any:
    again = replace(session(), store=store)
    value = pipeline.parse(texts[before(name)], STAGES[NAMES.index(name)].takes)
    return pipeline.run_stages(value, again, name, stop_after)


# --- the table ------------------------------------------------------------------------------------


def test_each_stage_takes_what_the_one_before_gives():
    stages = STAGES
    assert stages[0].takes == "model" and stages[-1].gives == "package"
    assert all(a.gives == b.takes for a, b in pairwise(stages))
    assert len(set(NAMES)) == len(stages)
    assert all(stage.what for stage in stages)


def test_the_order_of_what_depends_on_order():
    place = NAMES.index
    order = ["import", "specialize", "decompose", "fuse", "alias_buffers", "lower", "merge_axes",
             "schedule", "split_kernels", "legalize", "plan_memory", "barriers", "chunk_launches",
             "codegen"]  # fmt: skip
    assert sorted(order, key=place) == order


@pytest.mark.parametrize("name", TEXTUAL)
def test_stop_after_gives_what_the_table_says(name: str):
    made = pipeline.run_stages(small_model(), session(), stop_after=name)
    gives = STAGES[NAMES.index(name)].gives
    assert isinstance(made, KINDS[gives])
    assert not isinstance(made, Program) or made.is_planned == (name in PLANNED)


def test_wrong_names_and_orders():
    with refused("bad-option", "'lowr'", hint=NAMES):
        pipeline.run_stages(small_model(), session(), stop_after="lowr")
    with refused("bad-option", "'plan_memory'", "'lower'", hint=False):
        pipeline.run_stages(small_model(), session(), "plan_memory", "lower")


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTUAL)
def test_every_text_parses_back(name: str, texts: dict[str, str]):
    gives = STAGES[NAMES.index(name)].gives
    value = pipeline.parse(texts[name], gives)
    assert isinstance(value, KINDS[gives])
    assert pipeline.show(value) == texts[name]


def test_text_keeps_families_and_origins(texts: dict[str, str]):
    program = pipeline.parse(texts["lower"], "program")
    assert {kernel.family for _, kernel in program.kernels} == {
        "by_structure", "conv", "matmul", "pool", "winograd",
    }  # fmt: skip
    planned = pipeline.parse(texts["barriers"], "program")
    assert all(launch.origin for launch in tables(planned).launches)
    assert all(kernel.origin and kernel.family for _, kernel in planned.kernels)


@pytest.mark.parametrize("name", RESTARTS[:-1])
def test_starting_from_a_text_ends_in_the_same_program(name: str, whole):
    texts, made, _ = whole
    assert pipeline.show(restart(name, texts, made.store, TEXTUAL[-1])) == texts[TEXTUAL[-1]]


@pytest.mark.parametrize("name", ["specialize", "lower", "schedule", "codegen"])
def test_starting_from_a_text_gives_the_same_bytes(name: str, whole):
    texts, made, want = whole
    got = restart(name, texts, made.store, "codegen")
    assert got.modules == want.modules
    assert got.constants.tobytes() == want.constants.tobytes()
    assert got.report == want.report and got.launches == want.launches


# --- dumps ----------------------------------------------------------------------------------------


def test_a_dump_has_each_text_and_the_constants(tmp_path: Path):
    made = session(Dump(tmp_path))
    pipeline.run_stages(small_model(), made, stop_after="lower")
    files = sorted(path.name for path in tmp_path.iterdir())
    count = NAMES.index("lower") + 1
    want = [f"{n:02d}-{name}.txt" for n, name in enumerate(NAMES[:count])]
    assert files == [*want, pipeline.CONSTANTS_FILE]
    fresh = session()
    fresh.store.load(tmp_path / pipeline.CONSTANTS_FILE)
    assert len(fresh.store) == len(made.store)


def test_a_text_without_its_constants_says_so(whole):
    texts, _, _ = whole
    with refused("bad-graph", "@"):
        restart("codegen", texts, session().store, "codegen")


def test_a_stage_that_fails_leaves_what_came_before(tmp_path: Path, monkeypatch):
    def fail(value: Any, s: pipeline.Session) -> Any:
        raise IngotError("limit", "planted")

    _plant(monkeypatch, "merge_common", fail)
    with refused("limit", "planted", hint=False):
        pipeline.run_stages(small_model(), session(Dump(tmp_path)))
    left = [path.name for path in tmp_path.iterdir()]
    assert any("fold_constants_2" in name for name in left) and pipeline.CONSTANTS_FILE in left
    assert not any("merge_common" in name for name in left)


# --- checks ---------------------------------------------------------------------------------------


def _plant(monkeypatch, name: str, run) -> None:
    for module, table in ((pipeline, "COMMON"), (cpu, "STAGES")):
        stages = [replace(s, run=run) if s.name == name else s for s in getattr(module, table)]
        monkeypatch.setattr(module, table, tuple(stages))


def _lose_a_node(graph: Graph, s: pipeline.Session) -> Graph:
    return replace(graph, nodes=graph.nodes[1:])


def _lose_barriers(program: Program, s: pipeline.Session) -> Program:
    return replace(program, is_planned=True)


def _say_twice(program: Program, s: pipeline.Session) -> Program:
    """One kernel; the others are those of the stage before, which nobody looks at again."""
    (name, kernel), *others = program.kernels
    twice = replace(kernel, body=loops_ir.seq(kernel.body, kernel.body))
    return replace(program, kernels=((name, twice), *others))


@pytest.mark.parametrize(
    "stage, code, plant",
    [
        ("merge_common", "bad-graph", _lose_a_node),
        ("barriers", "bad-program", _lose_barriers),
        ("split_kernels", "bad-loops", _say_twice),
    ],
)
def test_the_verify_knob_holds_stages_to_the_law(monkeypatch, stage: str, code: str, plant):
    _plant(monkeypatch, stage, plant)
    with refused(code, hint=False):
        pipeline.run_stages(DIGITS, session(), stop_after=stage)
    with options.override(verify=False):
        assert pipeline.run_stages(DIGITS, session(), stop_after=stage) is not None


def test_a_kernel_that_stays_as_it_is_is_verified_once(monkeypatch):
    looked_at: list[int] = []
    verify = pipeline.loops_verify.verify
    monkeypatch.setattr(
        pipeline.loops_verify, "verify", lambda k: (looked_at.append(id(k)), verify(k))
    )
    pipeline.run_stages(DIGITS, session(), stop_after="dedupe_kernels_2")
    before = len(looked_at)
    pipeline.run_stages(DIGITS, session(), stop_after="barriers")
    assert 0 < before == len(looked_at) - before  # placing and barriers change no kernel
