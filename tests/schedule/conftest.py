"""Every trace that a test here makes replays to the same kernel in another process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ingot.schedule import Schedule
from tests.schedule.replay_process import replayed


@pytest.fixture(autouse=True)
def every_trace_replays(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if request.node.path.stem == "test_random":  # thousands: it replays what it keeps
        yield
        return
    made = []
    begin = Schedule.__init__

    def begin_and_note(sch, kernel):
        begin(sch, kernel)
        made.append((kernel, sch))

    monkeypatch.setattr(Schedule, "__init__", begin_and_note)
    yield
    monkeypatch.undo()
    for kernel, sch in made:
        if sch.trace.steps:
            assert replayed(kernel, sch.trace) == sch.kernel
