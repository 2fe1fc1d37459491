"""Where nothing is wrong, every stage's result is right: `verify` blames none of them."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.inspect.case import Case, Setting, stages
from ingot.inspect.stages import first_wrong_stage, judge
from ingot.inspect.verify import import_case
from ingot.support.options import Options, changed
from tests.models.build import HARD

SHORT = ("if_true", "loop", "nonzero_gather", "int8_matmul", "f16_weights", "lstm")


def options() -> Options:
    return changed(cache_dir="off", work_per_thread_us=0.0)


def case_of(name: str) -> tuple[Case, Setting]:
    model, feeds = HARD[name]()
    setting = Setting(options(), threads=2, jobs=1)
    return import_case(model, {k: np.asarray(a) for k, a in feeds.items()}, setting, None), setting


def every_stage_is_right(name: str) -> None:
    case, setting = case_of(name)
    session = setting.session(case.store)
    for stage, value, error in stages(case.graph, session):
        assert error is None, f"{stage}: {error}"
        outcome = judge(case.expected, stage, value, session.store, setting.threads)
        assert not outcome.is_wrong, f"{stage}: {outcome}"


@pytest.mark.parametrize("name", SHORT)
def test_every_stage_is_right(name):
    every_stage_is_right(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(HARD.keys() - set(SHORT)))
def test_every_stage_is_right_in_all_models(name):
    every_stage_is_right(name)


def test_no_stage_is_blamed_for_nothing():
    case, setting = case_of("int8_matmul")
    assert first_wrong_stage(case, setting) is None
