"""Scheduling and legalising in worker processes: the same results and errors as in one process."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

import ingot
from ingot import IngotError, api, pipeline
from ingot.arith import expr as arith
from ingot.codegen import calls, workers
from ingot.codegen.calls import map_calls
from ingot.loops.ir import Kernel
from ingot.support import options
from ingot.support.dump import Dump
from tests.models.build import HARD

COMPILER = os.getpid()


def names(items: range) -> list[tuple[str, int]]:
    return [(f"scheduling of kernel k{n}", n) for n in items]


def refuse_three(number: int) -> tuple[int, int]:
    if number == 3:
        raise IngotError(
            "bad-schedule", "three is refused", where="k3", why="it is odd", hint="four"
        )
    return number, os.getpid()


def die_at_three(compiler: int, number: int) -> int:
    if number == 3 and os.getpid() != compiler:
        os._exit(7)
    return number


def is_on(feature: str, number: int) -> bool:
    return options.current().has(feature)


def kernels(name: str) -> list[tuple[str, Kernel]]:
    session = api.make_session("x86-64-v3", jobs=1)
    return list(pipeline.run_stages(HARD[name]()[0], session, stop_after="legalize").kernels)


def same(value: object) -> object:
    return value


def test_results_are_in_order_and_from_other_processes():
    found = map_calls(refuse_three, names(range(4, 24)), 2)
    assert [number for number, _ in found] == [*range(4, 24)]
    assert COMPILER not in {process for _, process in found}


def test_an_error_in_a_worker_is_the_one_of_a_single_process():
    errors = []
    for processes in (1, 2):
        with pytest.raises(IngotError) as caught:
            map_calls(refuse_three, names(range(8)), processes)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "three is refused" in errors[0]


def test_a_worker_that_dies_is_an_error_that_names_the_kernel():
    with pytest.raises(IngotError, match="scheduling of kernel k3 did not finish") as caught:
        map_calls(partial(die_at_three, COMPILER), names(range(8)), 2)
    assert caught.value.code == "codegen-failed"
    assert map_calls(partial(die_at_three, COMPILER), names(range(4, 12)), 2) == [*range(4, 12)]


def test_what_cannot_be_sent_is_done_here():
    assert map_calls(lambda n: os.getpid(), names(range(8)), 2) == [os.getpid()] * 8
    deep = arith.Var("n")
    for _ in range(20_000):
        deep = arith.Mod(deep, arith.Const(7))
    items = [("deep", deep)] * calls.FEWEST
    assert all(x is deep for x in map_calls(same, items, 2))


def test_a_worker_has_the_options_in_force():
    with options.override(off=frozenset({"winograd"})):
        assert map_calls(partial(is_on, "winograd"), names(range(8)), 2) == [False] * 8
    assert map_calls(partial(is_on, "winograd"), names(range(8)), 2) == [True] * 8


def test_kernels_come_back_as_they_were_with_identities_of_their_own():
    sent = kernels("transformer_block")
    assert len(sent) >= calls.FEWEST
    for before, after in zip(sent, map_calls(same, sent, 2)):
        kernel = before[1]
        assert after == kernel and after is not kernel
        assert (after.name, after.plans, after.remarks) == (
            kernel.name,
            kernel.plans,
            kernel.remarks,
        )
        assert hash(after) == hash(kernel)


def test_texts_and_objects_do_not_depend_on_the_number_of_processes(tmp_path: Path):
    workers.close_all()
    found = []
    for jobs in (1, 2, 3):
        folder = tmp_path / str(jobs)
        with options.override(cache_dir="off"):
            exe = ingot.compile(HARD["transformer_block"]()[0], jobs=jobs, dump=Dump(str(folder)))
        texts = {file.name: file.read_bytes() for file in folder.iterdir()}
        found.append((texts, exe.package.modules))
    assert len(found[0][0]) > 20
    assert found[0] == found[1] == found[2]
