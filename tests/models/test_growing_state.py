"""States with a capacity: a KV cache that a call extends in place, versus ONNX Runtime's arrays."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import ingot
from ingot.runtime.state import State
from tests.models.caches import Cache
from tests.models.parts import Feeds
from tests.models.peers import assert_agree
from tests.refusal import refused

CAPACITY = 12
PLAIN = Cache()
EXAMPLE = Path(__file__).parents[2] / "examples" / "generate"


def compiled(cache: Cache, **given: object) -> ingot.Executable:
    options = {"state": cache.state, "capacity": CAPACITY, **given}
    return ingot.compile(cache.proto(), **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exe() -> ingot.Executable:
    return compiled(PLAIN)


class Reference:
    """ONNX Runtime's loop: the cache is passed in, and comes out longer."""

    def __init__(self, cache: Cache, batch: int):
        self.session = onnxruntime.InferenceSession(cache.proto().SerializeToString())
        self.cache, self.past = cache, cache.empty(batch)

    def __call__(self, feeds: Feeds) -> np.ndarray:
        y, *present = self.session.run(None, {**feeds, **self.past})
        self.past = dict(zip(self.cache.state, present))
        return y

    @property
    def length(self) -> int:
        return self.past["past_k0"].shape[self.cache.axis]


def step(
    exe: ingot.Executable, state: State, reference: Reference, seed: int, new: int, batch: int
) -> None:
    """One call of both: equal outputs, and equal rows in the caches."""
    feeds = reference.cache.call(seed, batch, new, state.length)
    want = reference(feeds)
    (got,) = exe.run(None, feeds, state=state)
    assert_agree(got, want)
    assert state.length == reference.length
    for name, rows in reference.past.items():
        assert_agree(state[name], rows)


CASES = {
    "rows third": Cache(),
    "rows second": Cache(axis=1),
    "rows first": Cache(axis=0),
    "two layers, no mask": Cache(layers=2, mask=False),
    "static batch": Cache(batch=2),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_prompt_and_then_steps(case: str, threads: int):
    shape = CASES[case]
    exe, reference = compiled(shape, threads=threads), Reference(shape, 2)
    state = exe.new_state(**({} if shape.batch == 2 else {"batch": 2}))
    for seed, new in enumerate((5, 1, 1, 3, 1, 1)):  # 12 rows: the last call fills it
        step(exe, state, reference, seed, new, 2)
    assert state.length == state.capacity == CAPACITY


def test_one_version_serves_an_empty_and_a_full_cache(exe: ingot.Executable):
    """No call compiles anything: the executable has no other versions of the model."""
    loaded = ingot.Executable(exe.package)
    state, reference = loaded.new_state(batch=1), Reference(PLAIN, 1)
    for seed in range(CAPACITY):
        step(loaded, state, reference, seed, 1, 1)


def test_rows_in_use_are_a_view(exe: ingot.Executable):
    state = exe.new_state(batch=2)
    assert state["past_k0"].shape == (2, 2, 0, 16) and state.length == 0
    exe.run(None, PLAIN.call(0, 2, 3, 0), state=state)
    rows = state["past_k0"]
    assert rows.shape == (2, 2, 3, 16) and np.shares_memory(rows, state.arrays["past_k0"])
    assert state.arrays["past_k0"].shape == (2, 2, CAPACITY, 16)
    assert np.any(rows) and not np.any(state.arrays["past_k0"][:, :, 3:])
    assert dict(state).keys() == PLAIN.state.keys()


def test_a_call_beyond_the_capacity_changes_nothing(exe: ingot.Executable):
    state, reference = exe.new_state(batch=1), Reference(PLAIN, 1)
    step(exe, state, reference, 0, 10, 1)
    before = state.memory.copy()
    with refused("bad-input", 10, 3, CAPACITY, where="past_k0", hint=("capacity", "reset")):
        exe.run(None, PLAIN.call(1, 1, 3, 10), state=state)
    assert state.length == 10 and np.array_equal(state.memory, before)
    step(exe, state, reference, 2, 2, 1)


def test_reset_shortens(exe: ingot.Executable):
    state, reference = exe.new_state(batch=1), Reference(PLAIN, 1)
    step(exe, state, reference, 0, 6, 1)
    state.reset(length=4)
    reference.past = {name: rows[:, :, :4] for name, rows in reference.past.items()}
    step(exe, state, reference, 1, 1, 1)
    state.reset()
    reference.past = PLAIN.empty(1)
    step(exe, state, reference, 2, 2, 1)
    for wrong in (3, -1, True, "1"):
        with refused("bad-option", 2):
            state.reset(length=wrong)  # type: ignore[arg-type]
    assert state.length == 2


def test_states_are_independent(exe: ingot.Executable):
    states = [exe.new_state(batch=2) for _ in range(2)]
    references = [Reference(PLAIN, 2) for _ in states]
    for seed, (which, new) in enumerate([(0, 3), (1, 1), (0, 1), (1, 4), (0, 2)]):
        step(exe, states[which], references[which], seed, new, 2)


def test_executables_take_turns_with_a_state(exe: ingot.Executable):
    """One for prompts and one for steps, specialised: the rows of both are in one cache."""
    steps = compiled(PLAIN, shapes={"seq": 1, "batch": 1})
    state, reference = exe.new_state(batch=1), Reference(PLAIN, 1)
    for seed, (run, new) in enumerate([(exe, 4), (steps, 1), (steps, 1), (exe, 2), (steps, 1)]):
        step(run, state, reference, seed, new, 1)
    other = compiled(PLAIN, capacity=CAPACITY + 1)
    with refused("bad-input", CAPACITY, CAPACITY + 1, where="past_k0", hint=False):
        other.run(None, PLAIN.call(0, 1, 1, state.length), state=state)


def test_ways_to_call(exe: ingot.Executable):
    feeds = PLAIN.call(0, 1, 2, 0)
    (want,) = exe.run(None, feeds, state=exe.new_state(batch=1))
    assert [p.name for p in exe.inputs] == ["x", "mask"] and [p.name for p in exe.outputs] == ["y"]
    given = feeds["x"], feeds["mask"]
    out = np.empty_like(want)
    results = [
        exe(*given, state=exe.new_state(batch=1)),
        exe(**feeds, state=exe.new_state(batch=1)),
        exe.run(["y"], feeds, state=exe.new_state(batch=1)),
        exe(*given, out=out, state=exe.new_state(batch=1)),
        exe.run(None, feeds, out={"y": out}, state=exe.new_state(batch=1)),
    ]
    for got in results:
        assert len(got) == 1 and np.array_equal(got[0], want)
    assert results[-1][0] is out


def test_calls_that_are_refused(exe: ingot.Executable):
    feeds, state = PLAIN.call(0, 1, 2, 0), exe.new_state(batch=1)
    with refused("bad-input", "state", hint="new_state"):
        exe.run(None, feeds)
    with refused("bad-input", "dict", hint="new_state"):
        exe.run(None, feeds, state={})  # type: ignore[arg-type]
    with refused("bad-input", "present_k0", "past_k0", hint="y"):
        exe.run(["present_k0"], feeds, state=state)
    with refused("bad-input", 2, 3, where="mask"):
        exe.run(None, {**feeds, "mask": np.ones((1, 3), np.float32)}, state=state)
    with refused("bad-input", where="x"):
        shared = state.arrays["past_k0"].reshape(-1)[:64].reshape(1, 2, 32)
        exe.run(None, {**feeds, "x": shared}, state=state)
    with refused("bad-input", 1, 2, "batch"):
        exe.run(None, feeds, state=exe.new_state(batch=2))
    with state.in_use(), refused("bad-input", hint="new_state"):
        exe.run(None, feeds, state=state)
    assert state.length == 0 and not state.memory.any()
    plain = ingot.compile(PLAIN.proto())
    with refused("bad-input", hint="capacity"):
        plain.run(None, {**feeds, **PLAIN.empty(1)}, state=state)
    with refused("bad-option", hint="capacity"):
        plain.new_state(batch=1)


def test_new_state_needs_the_dimensions_of_the_states(exe: ingot.Executable):
    with refused("bad-option", "batch"):
        exe.new_state()
    with refused("bad-option", "seq", hint="batch"):
        exe.new_state(batch=1, seq=1)
    with refused("bad-option", 0, "batch", hint=False):
        exe.new_state(batch=0)


def test_a_plan_file_keeps_states(exe: ingot.Executable, tmp_path: Path):
    exe.save(tmp_path / "cache.plan")
    loaded = ingot.load(tmp_path / "cache.plan")
    state, reference = loaded.new_state(batch=2), Reference(PLAIN, 2)
    for seed, new in enumerate((4, 1)):
        step(loaded, state, reference, seed, new, 2)


def test_the_capacity_is_part_of_the_cache_key(tmp_path: Path):
    file, options = tmp_path / "cache.onnx", {"cache_dir": str(tmp_path), "cache_models": True}
    onnx.save(PLAIN.proto(), str(file))
    small, again, large = (
        ingot.compile(file, state=PLAIN.state, capacity=rows, options=options)
        for rows in (12, 12, 64)
    )
    assert "cache" in again.times_s and "cache" not in small.times_s
    assert "cache" not in large.times_s and large.new_state(batch=1).capacity == 64
    state, reference = again.new_state(batch=1), Reference(PLAIN, 1)
    step(again, state, reference, 0, 2, 1)


def test_capacity_by_name():
    names = dict(zip(PLAIN.state, (12, 20)))
    exe, reference = compiled(PLAIN, capacity=names), Reference(PLAIN, 1)
    state = exe.new_state(batch=1)
    assert state.capacity == 12 and state.arrays["past_v0"].shape[2] == 20
    for seed, new in enumerate((4, 1)):
        step(exe, state, reference, seed, new, 1)


def test_a_profile_leaves_the_state_as_it_was():
    exe = compiled(PLAIN, profile=True)
    state = exe.new_state(batch=1)
    exe.run(None, PLAIN.call(0, 1, 3, 0), state=state)
    rows = state["past_k0"].copy()
    exe.profile(PLAIN.call(1, 1, 1, 3), runs=3, state=state)
    assert state.length == 3 and np.array_equal(state["past_k0"], rows)


def test_the_c_target_keeps_states():
    exe, reference = compiled(PLAIN, target="c"), Reference(PLAIN, 1)
    state = exe.new_state(batch=1)
    for seed, new in enumerate((3, 1)):
        step(exe, state, reference, seed, new, 1)


def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    runpy.run_path(str(EXAMPLE / "generate.py"), run_name="__main__")
    sys.modules.pop("decoder", None)
    assert "they agree" in capsys.readouterr().out
