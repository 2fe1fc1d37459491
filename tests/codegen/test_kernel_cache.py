"""Objects come from the cache when text, machine, level and LLVM are the same; only then."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import backends
from ingot.codegen import kernel_cache
from ingot.codegen.llvm import machine_of
from ingot.codegen.workers import Job, compile_all
from ingot.support import cache_folder, options
from tests.models.build import residual_cnn

TEXT = "define i32 @ingot_kernel() {\n ret i32 %d\n}\n"


@pytest.fixture
def cache(tmp_path: Path):
    with options.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def build(*numbers: int, machine=None) -> tuple[list[bytes], list[str]]:
    """The objects, and the names of those that had to be made."""
    machine = machine or machine_of(backends.find("cpu").target("cpu"))
    made: list[str] = []

    def compile_jobs(jobs):
        made.extend(job.name for job in jobs)
        return compile_all(jobs, machine, 1)

    jobs = [Job(f"k{n}", TEXT % n) for n in numbers]
    return kernel_cache.compile_cached(jobs, machine, compile_jobs), made


def test_only_what_is_missing_is_made(cache):
    first, made = build(1, 2, 1)
    assert made == ["k1", "k2"]
    assert first[0] == first[2] != first[1]
    second, made = build(2, 3, 1)
    assert made == ["k3"] and second[0] == first[1] and second[2] == first[0]


def test_another_cpu_or_level_is_another_key(cache):
    target = backends.find("cpu").target("x86-64-v3")
    machine = machine_of(target)
    build(1, machine=machine)
    assert build(1, machine=machine)[1] == []
    fewer = ",".join(machine.features.split(",")[1:])
    for other in (replace(machine, features=fewer), replace(machine, level=2)):
        assert build(1, machine=other)[1] == ["k1"]
    with options.override(cache_dir=str(cache), jobs=7):  # changes no code
        assert build(1, machine=machine)[1] == []


def test_a_damaged_entry_is_made_again(cache):
    (whole,), _ = build(1)
    (path,) = (cache / "kernels").iterdir()
    entry = path.read_bytes()
    path.write_bytes(entry[:-9] + bytes([entry[-9] ^ 1]) + entry[-8:])
    objects, made = build(1)
    assert made == ["k1"] and objects == [whole]
    assert path.read_bytes() == entry


def test_equal_kernels_of_other_models_are_found(cache):
    """Names of nodes and tensors are not in the key."""
    model, feeds = residual_cnn()
    expected = ingot.compile(model, jobs=1)(**feeds)
    count = len(os.listdir(cache / "kernels"))
    for node in model.graph.node:
        node.name = f"other_{node.name}"
    again = ingot.compile(model, jobs=1)(**feeds)
    new = len(os.listdir(cache / "kernels")) - count
    assert new <= 1  # the entry, perhaps
    assert all(np.array_equal(a, b) for a, b in zip(expected, again))


def test_without_room_it_compiles_all_the_same(cache):
    model, feeds = residual_cnn()
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    cache_folder._warned.clear()
    with pytest.warns(cache_folder.CacheWarning):
        assert ingot.compile(model, jobs=1)(**feeds)[0].size
