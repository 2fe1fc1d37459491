"""exe.save and ingot.load: the same package, field by field, from a file that is checked first."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.arith import expr as arith
from ingot.runtime import plan_file
from ingot.runtime.cpu import host, module
from ingot.runtime.plan_table import from_expr, to_expr
from tests.models.build import HARD
from tests.refusal import is_told, refused
from tests.small import small_model

ROOT = Path(__file__).parents[2]
n, m = arith.Var("n"), arith.Var("batch size: *")


@pytest.mark.parametrize("name", ["if_of_sizes", "loop", "kv_cache_mask", "dynamic_sequence"])
def test_a_package_comes_back(tmp_path, name):
    """Branches, loops, states, data-dependent sizes, expressions over dynamic dimensions."""
    model, feeds = HARD[name]()
    exe = ingot.compile(model, jobs=1)
    exe.save(tmp_path / "model.plan")
    again = ingot.load(tmp_path / "model.plan", threads=1)
    for field in fields(exe.package):
        ours, theirs = getattr(exe.package, field.name), getattr(again.package, field.name)
        equal = np.array_equal(ours, theirs) if field.name == "constants" else ours == theirs
        assert equal, field.name
    rows, _, times = exe.report().rpartition("\n")
    assert again.threads == 1 and again.report() == rows, "the compile time is not kept"
    assert re.match(r"compile time \d+\.\d\d s: .*codegen \d+\.\d\d", times)
    for a, b in zip(exe.run(None, feeds), again.run(None, feeds)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "e", [arith.Const(-3), n, n + 1, (n * 3 - m) // 2 % 7, arith.minimum(n, arith.maximum(m, 4))]
)
def test_sizes_come_back(e):
    assert to_expr(from_expr(e)) == e


def test_a_long_sum_comes_back():
    total = n
    for i in range(50_000):
        total = arith.Add(total, arith.Const(i))
    assert to_expr(from_expr(total))._hash == total._hash


def test_equal_packages_are_equal_bytes(tmp_path):
    for name in "ab":
        ingot.compile(small_model(), jobs=1).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_loading_needs_no_compiler(tmp_path):
    ingot.compile(small_model(), jobs=1).save(tmp_path / "small.plan")
    code = """
import sys, ingot
exe = ingot.load(sys.argv[1])
print(exe([[1.0, 2.0, 3.0, 4.0]])[0])
found = [m for m in sys.modules if m.split(".")[0] in ("onnx", "llvmlite")]
found += [m for m in sys.modules if m.startswith(("ingot.graph", "ingot.pipeline", "ingot.ops"))]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "small.plan"], cwd=ROOT, check=True)


def test_every_byte_is_checked(tmp_path):
    path = tmp_path / "small.plan"
    ingot.compile(small_model(), jobs=1).save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with refused("bad-model", where=str(path), hint=False):
            ingot.load(path)
    for data in (b"", whole[:40], whole[:-1], whole + b"x"):
        path.write_bytes(data)
        with refused("bad-model", where=str(path), hint=False):
            ingot.load(path)
    missing = tmp_path / "none"
    with refused("bad-model", os.strerror(errno.ENOENT), where=str(missing), hint=False):
        ingot.load(missing)


def test_saving_replaces_the_whole_file_or_nothing(tmp_path):
    path = tmp_path / "small.plan"
    exe = ingot.compile(small_model(), jobs=1)
    path.write_text("what was there")
    exe.package = replace(exe.package, symbols=None)  # cannot be written
    with pytest.raises(TypeError):
        exe.save(path)
    assert path.read_text() == "what was there" and os.listdir(tmp_path) == ["small.plan"]


def test_a_plan_that_cannot_be_written_names_the_users_path(tmp_path):
    path = tmp_path / "nowhere" / "small.plan"
    with refused("bad-option", os.strerror(errno.ENOENT), where=str(path)) as caught:
        ingot.compile(small_model(), jobs=1).save(path)
    assert "tmp" not in caught.value.why, "the name it has while it is written"


def test_a_plan_for_another_processor_is_refused(tmp_path):
    exe = ingot.compile(small_model(), jobs=1)
    built = module.read(exe.package)
    assert host.missing_features(built.features) == []
    strange = replace(built, features=("sse2", "avx1024f")).pack()
    strange = replace(exe.package, modules=(strange,))
    plan_file.save(str(tmp_path / "strange.plan"), strange)
    hint = ('target="x86-64-v3"', "x86-64-v2")
    with refused("bad-target", "avx1024f", where="strange.plan", hint=hint) as caught:
        ingot.load(tmp_path / "strange.plan")
    assert not is_told("sse2", caught.value.why), "this machine has it"


def test_constants_lie_on_a_page(tmp_path):
    exe = ingot.compile(small_model(), jobs=1)
    exe.save(tmp_path / "small.plan")
    constants = ingot.load(tmp_path / "small.plan").package.constants
    assert constants.ctypes.data % 4096 == 0 and not constants.flags.writeable
