"""What is promised of every model that `make bench` times: no kernel is scalar or serial without a
stated reason, and the arena is hardly larger than the largest live set."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import models
from ingot import api, pipeline
from ingot.backends.report import report, summarize_kernels
from ingot.program import ir
from tests.plan.test_memory import ROOM, arena_and_live_bytes

SMALL = ("digits", "tiny_mlp", "tiny_cnn", "lstm_tagger", "silero_vad", "unet")


def planned(name: str, folder: Path) -> ir.Program:
    case = models.make(name, folder)
    session = api.make_session(shapes=dict(case.sizes))
    return pipeline.run_stages(case.file, session, stop_after="barriers")


def check(program: ir.Program) -> None:
    rows = report(program, summarize_kernels(program))
    assert rows
    for row in rows:
        assert bool(row.why_serial) == row.is_serial, row
        assert row.lanes > 1 or row.why_scalar, row
        assert "the schedule left it so" not in row.why, row
    arena, live = arena_and_live_bytes(program)
    assert live <= arena <= ROOM * live, (arena, live)


@pytest.mark.parametrize("name", SMALL)
def test_small_models(name: str, tmp_path: Path):
    check(planned(name, tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("name", [*models.SINGLE, *models.BATCHES])
def test_every_model_that_is_timed(name: str, tmp_path: Path):
    check(planned(name, tmp_path))
