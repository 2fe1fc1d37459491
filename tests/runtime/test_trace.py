"""exe.trace: what each thread did when, as a file that Perfetto and chrome://tracing read."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import ingot
from ingot.arith import expr as arith
from ingot.runtime.report import number
from ingot.runtime.trace import Event, Events, Trace, slice_name
from tests.models.build import HARD
from tests.refusal import refused

BATCH, CALLS = 64, 3


@pytest.fixture(scope="module")
def digits() -> ingot.Executable:
    return ingot.compile("examples/digits/digits.onnx", threads=2, profile=True)


@pytest.fixture(scope="module")
def saved(digits, tmp_path_factory) -> dict:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    images = np.zeros((BATCH, 1, 8, 8), np.float32)
    digits.trace({"image": images}, CALLS).save(path)
    return json.loads(path.read_text())


def slices(saved: dict) -> list[dict]:
    return [e for e in saved["traceEvents"] if e["ph"] == "X"]


def test_every_event_has_what_the_format_asks_for(saved):
    assert saved["displayTimeUnit"] in ("ms", "ns")
    assert {e["ph"] for e in saved["traceEvents"]} == {"M", "X"}
    for event in saved["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["args"], dict)
    for event in slices(saved):
        assert type(event["ts"]) is float and type(event["dur"]) is float
        assert event["dur"] >= 0 and isinstance(event["cat"], str)
    named = {e["tid"] for e in saved["traceEvents"] if e["name"] == "thread_name"}
    assert named == {e["tid"] for e in slices(saved)} | {0}
    assert [e["args"]["name"] for e in saved["traceEvents"] if e["name"] == "process_name"]


def test_slices_of_a_thread_are_in_order_and_nested_in_its_call(saved):
    for thread in {e["tid"] for e in slices(saved)}:
        own = [e for e in slices(saved) if e["tid"] == thread]
        calls = [e for e in own if e["cat"] == "call"]
        work = [e for e in own if e["cat"] != "call"]
        assert work and len(calls) == (CALLS if thread == 0 else 0)
        for before, after in [*pairwise(work), *pairwise(calls)]:
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
        for event in work if calls else ():
            around = [c for c in calls if c["ts"] <= event["ts"] <= c["ts"] + c["dur"]]
            assert len(around) == 1
            assert event["ts"] + event["dur"] <= around[0]["ts"] + around[0]["dur"] + 1e-6


def test_every_call_has_all_iterations_of_every_launch(digits, saved):
    """They are what the threads really did: in each call, each iteration once."""
    bounds = [(e["ts"], e["ts"] + e["dur"]) for e in slices(saved) if e["cat"] == "call"]
    assert saved["otherData"]["lost"] == 0 and len(bounds) == CALLS
    for start, stop in bounds:
        done: dict[str, list[tuple[int, int]]] = {}
        for event in slices(saved):
            if "kernel" in event["args"] and start <= event["ts"] <= stop:
                low, high = event["args"]["iterations"].split(" of ")[0].split(" to ")
                done.setdefault(event["args"]["kernel"], []).append((int(low), int(high)))
        extents: Counter[str] = Counter()
        for row in digits.package.report:
            if "when=rows<=1" not in row.plan:  # the variant for one image
                extents[row.kernel] += number(row.parallel_extent, {"batch": BATCH})
        assert {k: sum(high - low for low, high in ends) for k, ends in done.items()} == extents
    single = next(r for r in digits.package.report if r.kernel == "max_pool")
    parts = sorted(done["max_pool"])
    assert parts[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(parts))
    assert parts[-1][1] == arith.evaluate(single.parallel_extent, {"batch": BATCH})


def test_slices_carry_the_models_names_and_the_work(digits, saved):
    found = next(e for e in slices(saved) if e["args"].get("kernel") == "matmul_add_relu")
    assert found["name"] == "node_linear + node_relu_3" and found["cat"] == "matmul"
    assert found["args"]["nodes"] == ["node_linear", "node_relu_3"]
    assert "gemm" in found["args"]["plan"] and found["args"]["family"] == "matmul"
    row = next(r for r in digits.package.report if r.kernel == "matmul_add_relu")
    flops = sum(e["args"]["flops"] for e in slices(saved) if e["args"].get("kernel") == row.kernel)
    assert flops == pytest.approx(CALLS * number(row.flops, {"batch": BATCH}), rel=1e-3)
    time_us = sum(e["dur"] for e in slices(saved) if e["args"].get("kernel") == row.kernel)
    rates = [e["args"]["GFLOP/s"] for e in slices(saved) if e["args"].get("kernel") == row.kernel]
    assert min(rates) - 0.1 <= flops / time_us / 1e3 <= max(rates) + 0.1


def test_a_loop_has_an_event_for_every_launch():
    model, feeds = HARD["loop"]()
    exe = ingot.compile(model, profile=True)
    trace = exe.trace(feeds, calls=1)
    counts = Counter(e.launch for thread in trace.events.threads for e in thread if not e.wait)
    assert trace.events.lost == 0 and max(counts.values()) > 1


def test_events_without_room_are_counted_and_not_made_up():
    event = Event(launch=0, wait=0, low=0, high=4, start=110, stop=150)
    waits = Event(launch=0, wait=8, low=0, high=1, start=150, stop=170)
    events = Events([[event, waits]], [(100, 200)], 0.5, {}, 7)
    made = Trace("m", {}, events).as_dict()
    assert made["otherData"]["lost"] == 7
    call, work, wait = [e for e in made["traceEvents"] if e["ph"] == "X"]
    assert (call["ts"], call["dur"]) == (0.0, 50.0)
    assert (work["ts"], work["dur"]) == (5.0, 20.0)
    assert (wait["ts"], wait["dur"], wait["name"]) == (25.0, 10.0, "wait")


def test_names_of_slices(digits):
    row = next(r for r in digits.package.report if r.kernel == "conv_add_relu_1")
    assert slice_name(row) == "node_Conv_27 + node_add_40 + node_relu_2"


def test_without_counters_it_says_how_to_get_them():
    model, feeds = HARD["gather_rows"]()
    with refused("bad-option", hint="profile=True"):
        ingot.compile(model).trace(feeds)
