"""Limits on compiling: past one the code is simpler, the outputs are equal, the report says so."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import ingot
from ingot import api, cache, pipeline
from ingot.cli.main import main
from ingot.cli.options import size_bytes
from ingot.support import options
from ingot.support.limits import Limits, resident_bytes
from tests.models.build import HARD
from tests.refusal import is_told, refused
from tests.small import small_model


@pytest.mark.parametrize("name", ["residual_cnn", "lstm", "dynamic_sequence", "nonzero_gather"])
def test_no_time_at_all_gives_the_same_answers(name):
    model, feeds = HARD[name]()
    quick = ingot.compile(model, jobs=1, time_limit_s=0)
    report = quick.report().splitlines()
    assert all(is_told("time_limit_s=0", line) for line in report[:2])
    assert is_told("-O1", report[1])
    for threads in (1, 2):
        quick.threads = threads
        for a, b in zip(quick.run(None, feeds), ingot.compile(model, jobs=1).run(None, feeds)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_limit_that_is_not_reached_changes_nothing():
    far = ingot.compile(small_model(), jobs=1, time_limit_s=1e6, memory_limit_bytes=1 << 50)
    plain = ingot.compile(small_model(), jobs=1)
    assert far.package.notes == ()
    assert far.package.modules == plain.package.modules
    assert without_times(far) == without_times(plain)


def without_times(exe: ingot.Executable) -> list[str]:
    return [x for x in exe.report().splitlines() if not x.startswith("compile time ")]


def test_memory_is_a_limit_too():
    held = resident_bytes()
    exe = ingot.compile(small_model(), jobs=1, memory_limit_bytes=held // 2)
    assert is_told(f"memory_limit_bytes={held // 2}", exe.report())


def test_a_limit_may_be_reached_on_the_way():
    """Between two batches of kernels: some are made with all of LLVM, the rest with less."""
    answers = iter([""] * 7 + ["enough"] * 100)

    class Soon(Limits):
        is_set = True

        def reached(self) -> str:
            return next(answers)

    model, _ = HARD["residual_cnn"]()
    session = api.make_session(jobs=1)
    session.limits = Soon()
    package = pipeline.run_stages(model, session)
    left = [re.match(r"enough: (\d+) of (\d+) ", note) for note in package.notes]
    assert left[0] and 0 < int(left[0][1]) < int(left[0][2]), package.notes


def test_what_was_made_in_haste_is_not_kept(tmp_path):
    onnx.save(small_model(), tmp_path / "model.onnx")
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        ingot.compile(tmp_path / "model.onnx", jobs=1, time_limit_s=0)
        assert cache.size().kinds["models"] == (0, 0)
        ingot.compile(tmp_path / "model.onnx", jobs=1)
        found = ingot.compile(tmp_path / "model.onnx", time_limit_s=0)
        assert list(found.times_s) == ["cache"] and not found.package.notes


@pytest.mark.parametrize(
    "options",
    [{"time_limit_s": -1}, {"time_limit_s": "1"}, {"time_limit_s": float("nan")},
     {"memory_limit_bytes": 0}, {"memory_limit_bytes": 1.5}],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(options):
    ((name, value),) = options.items()
    with refused("bad-option", f"{name}={value!r}"):
        ingot.compile(small_model(), **options)


def test_limits_on_the_command_line(tmp_path):
    """The same words as in exe.report(), in both forms of the output; nothing is cached."""
    onnx.save(small_model(), tmp_path / "model.onnx")
    words = ["compile", str(tmp_path / "model.onnx"), "--jobs", "1"]
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        late = CliRunner().invoke(main, [*words, "--time-limit", "0"])
        assert late.exit_code == 0 and "time_limit_s=0 was reached" in late.output
        full = CliRunner().invoke(main, [*words, "--memory-limit", "1kB", "--json"])
        assert any("memory_limit_bytes=1000" in note for note in json.loads(full.stdout)["notes"])
        assert cache.size().kinds["models"] == (0, 0)
        far = CliRunner().invoke(main, [*words, "--memory-limit", "4096GiB", "--json"])
        assert json.loads(far.stdout)["notes"] == []
        assert cache.size().kinds["models"][0] == 1


@pytest.mark.parametrize("words", [["--time-limit", "-1"], ["--time-limit", "soon"],
                                   ["--memory-limit", "0"], ["--memory-limit", "2 GBB"],
                                   ["--memory-limit", "lots"], ["--jobs", "0"]])  # fmt: skip
def test_limits_that_cannot_be_on_the_command_line(tmp_path, words):
    onnx.save(small_model(), tmp_path / "model.onnx")
    done = CliRunner().invoke(main, ["compile", str(tmp_path / "model.onnx"), *words])
    assert done.exit_code == 2 and words[0] in done.output


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("2k", 2000),
        ("2KB", 2000),
        ("1.5 MB", 1_500_000),
        ("2GiB", 2 << 30),
        ("1ti", 1 << 40),
    ],
)
def test_sizes_of_memory(text, count):
    assert size_bytes(None, None, text) == count
