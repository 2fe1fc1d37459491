"""exe.profile: every launch counted, on each thread, and only where counters were compiled in."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ingot
from ingot import target as targets
from ingot.arith import expr as arith
from ingot.codegen import llvm_object
from ingot.runtime.cpu.elf import ObjectFile, undefined_symbols
from ingot.runtime.cpu.module import read
from ingot.runtime.cpu.native.probe import flops_per_iteration, probe_text
from ingot.runtime.cpu.peak import measure
from ingot.runtime.profile import Level, Peak, Profile, ProfileRow
from tests.models.build import HARD
from tests.refusal import refused


def test_every_launch_is_counted():
    model, feeds = HARD["transformer_block"]()
    exe = ingot.compile(model, threads=2, profile=True)
    profile = exe.profile(feeds, runs=3)
    assert [row.kernel for row in profile.rows] == [row.kernel for row in exe.package.report]
    batch, length = feeds["x"].shape[:2]
    for row, launch in zip(profile.rows, exe.package.report):
        has_work = arith.evaluate(launch.parallel_extent, {"batch": batch, "length": length}) > 0
        has_work &= "when=rows<=1" not in launch.plan or batch * length == 1  # a variant
        assert (row.time_us > 0) == has_work, row.kernel
    assert profile.runs == 3 and profile.threads in (1, 2)
    assert sum(row.time_us for row in profile.rows) <= 2 * profile.run_us
    assert any(row.flops for row in profile.rows)
    for row in profile.rows:
        assert row.kernel in str(profile) and row.origin in str(profile)


def test_the_report_has_the_prediction_and_what_was_measured():
    exe = ingot.compile("examples/digits/digits.onnx", profile=True)
    columns = exe.report().splitlines()[0]
    before, after = columns.index("predicted µs"), columns.index("not vectorised or parallel")
    lines = exe.report().splitlines()[1:-1]  # without the head and the compile times
    assert {line[before:after].strip().split()[-1] for line in lines} == {"-"}
    at_four = exe.report(batch=4).splitlines()[:-1]
    assert "-" not in {line.split("  ")[7] for line in map(_squeezed, at_four[1:])}
    profile = exe.profile({"image": np.zeros((4, 1, 8, 8), np.float32)}, runs=2)
    rows = [_squeezed(line).split("  ") for line in exe.report().splitlines()[1:-1]]
    assert [row[7] for row in rows] == [_squeezed(line).split("  ")[7] for line in at_four[1:]]
    for row, launch in zip(rows, profile.rows, strict=True):
        assert float(row[8]) == pytest.approx(launch.time_us, abs=0.51)


def _squeezed(line: str) -> str:
    """Columns parted by two spaces each."""
    return re.sub(r"\s{2,}", "  ", line)


def test_a_share_of_the_peak_is_of_what_bounds_the_kernel():
    """By hand: 100 flops/µs, a near level of 1000 bytes a thread, and memory."""
    near, memory = Level("L1", 1000, 50.0), Level("memory", None, 5.0)
    peak = Peak(2, 100.0, (near, memory))
    assert peak.bound(10_000, 2000) == ("fma", 100.0)
    assert peak.bound(1_000, 2000) == ("L1", 40.0)
    assert peak.bound(1_000, 2001) == ("memory", 2001 / 5)
    assert peak.bound(None, 0) == ("L1", 0.0)
    row = ProfileRow("k", "", 80.0, 1.0, 1_000, 2000, 8, *peak.bound(1_000, 2000))
    assert row.roofline_fraction == 0.5
    profile = Profile((row,), peak, 100.0, 2, 1)
    assert "50 % L1" in str(profile) and "1000" in str(profile) and str(peak) in str(profile)


def test_the_peak_is_measured_on_this_machine():
    exe = ingot.compile(HARD["gather_rows"]()[0], profile=True)
    probe = read(exe.package).probe
    assert probe is not None
    for threads in (1, 2):
        peak = measure(probe, threads)
        assert measure(probe, threads) is peak  # once a process
        assert peak.threads == threads and peak.flops_per_us > 0
        assert [level.name for level in peak.levels][-1] == "memory"
        assert all(level.bytes_per_us > 0 for level in peak.levels)


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_the_probe_is_closed_and_multiplies_by_vectors(name):
    target = targets.parse(name)
    text = probe_text(target)
    data = llvm_object.compile_text(text, target.triple, target.cpu, target.feature_string, 3)
    assert undefined_symbols(data) == [] and ObjectFile(data).mutable_sections() == []
    assert flops_per_iteration(target) == 24 * target.vector_bits // 32
    assert ("llvm.fma" in text) == (name != "x86-64-v2")


def test_counters_do_not_change_answers():
    model, feeds = HARD["loop"]()
    plain, counted = ingot.compile(model), ingot.compile(model, profile=True)
    for a, b in zip(plain.run(None, feeds), counted.run(None, feeds)):
        assert a.tobytes() == b.tobytes()
    ours, theirs = read(plain.package), read(counted.package)
    assert ours.entry != theirs.entry and ours.kernels == theirs.kernels


def test_without_counters_it_says_how_to_get_them():
    model, feeds = HARD["gather_rows"]()
    with refused("bad-option", hint="profile=True"):
        ingot.compile(model).profile(feeds)
