"""exe.profile: every launch counted, on each thread, and only where counters were compiled in."""

from __future__ import annotations

import pytest

import ingot
from tests.models.build import HARD


def test_every_launch_is_counted():
    model, feeds = HARD["transformer_block"]()
    exe = ingot.compile(model, threads=2, profile=True)
    profile = exe.profile(feeds, runs=3)
    assert [row.kernel for row in profile.rows] == [row.kernel for row in exe.package.report]
    assert all(row.time_us > 0 for row in profile.rows)
    assert profile.runs == 3 and profile.threads in (1, 2)
    assert sum(row.time_us for row in profile.rows) <= 2 * profile.run_us
    assert any(row.flops for row in profile.rows)
    for row in profile.rows:
        assert row.kernel in str(profile) and row.origin in str(profile)


def test_counters_do_not_change_answers():
    model, feeds = HARD["loop"]()
    plain, counted = ingot.compile(model), ingot.compile(model, profile=True)
    for a, b in zip(plain.run(None, feeds), counted.run(None, feeds)):
        assert a.tobytes() == b.tobytes()
    assert plain.package.entry_object != counted.package.entry_object
    assert plain.package.kernel_objects == counted.package.kernel_objects


def test_without_counters_it_says_how_to_get_them():
    model, feeds = HARD["gather_rows"]()
    with pytest.raises(ingot.IngotError, match="profile=True"):
        ingot.compile(model).profile(feeds)
