"""The model cache: a second process gets the same executable without the compiler, and nothing that
can happen to the folder changes an answer.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import ingot
from ingot import api, cache
from ingot.support import cache_folder, identity, options
from tests.small import small_model

ROOT = Path(__file__).parents[1]
HEAVY = ("onnx", "llvmlite", "ingot.pipeline", "ingot.graph", "ingot.ops", "ingot.codegen")


@pytest.fixture
def home(tmp_path: Path):
    """A cache of its own, and a model with its answers beside it."""
    cache_folder._warned.clear()
    onnx.save(small_model(), tmp_path / "model.onnx")
    feeds = {"x": np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)}
    np.savez(tmp_path / "feeds.npz", **feeds)
    answers = ingot.compile(small_model(), jobs=1).run(None, feeds)
    np.savez(tmp_path / "answers.npz", *answers)
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        yield tmp_path


RUN = """
import json, sys
import numpy as np
import ingot
exe = ingot.compile(sys.argv[1] + "/model.onnx", jobs=1)
answers = exe.run(None, dict(np.load(sys.argv[1] + "/feeds.npz")))
expected = np.load(sys.argv[1] + "/answers.npz")
assert all(np.array_equal(a, expected[f"arr_{i}"]) for i, a in enumerate(answers))
print(json.dumps({"stages": list(exe.times_s), "modules": sorted(sys.modules)}))
"""


def start(home: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(home)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=options.child_environment(),
    )  # fmt: skip


def said(process: subprocess.Popen) -> dict:
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return json.loads(out)


def compile_here(home: Path, **options) -> ingot.Executable:
    return ingot.compile(home / "model.onnx", jobs=1, **options)


def is_hit(exe: ingot.Executable) -> bool:
    return list(exe.times_s) == ["cache"]


def agrees(exe: ingot.Executable, home: Path) -> bool:
    answers = exe.run(None, dict(np.load(home / "feeds.npz")))
    expected = np.load(home / "answers.npz")
    return all(np.array_equal(a, expected[f"arr_{i}"]) for i, a in enumerate(answers))


def entry(home: Path) -> Path:
    (path,) = (home / "cache" / "models").iterdir()
    return path


def test_a_second_process_needs_no_compiler(home):
    first = said(start(home))
    assert "codegen" in first["stages"]
    second = said(start(home))
    assert second["stages"] == ["cache"]
    assert not [m for m in second["modules"] if m in HEAVY]


def test_two_processes_at_once(home):
    both = [start(home) for _ in range(2)]
    for process in both:
        said(process)
    assert is_hit(compile_here(home)) and agrees(compile_here(home), home)
    assert len(os.listdir(home / "cache" / "models")) == 1


def test_killed_at_any_moment(home):
    """Of filling an empty cache; the next process finds all, some or nothing."""
    rng = random.Random(1)
    begun = time.monotonic()
    compile_here(home)
    whole_s = time.monotonic() - begun
    for turn in range(10):
        cache.clear()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                compile_here(home)
            os._exit(0)
        time.sleep(whole_s * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert agrees(compile_here(home), home), turn
    cache_folder.sweep(str(home / "cache"), grace_s=0)
    assert not list((home / "cache").rglob(".tmp-*"))


def test_constants_are_mapped_from_the_entry(home):
    cold = compile_here(home)
    assert not is_hit(cold)
    for exe in (cold, compile_here(home)):
        start_at = exe.package.constants.ctypes.data
        maps = Path("/proc/self/maps").read_text().splitlines()
        (line,) = [x for x in maps if _covers(x, start_at)]
        assert line.split()[1] == "r--s" and line.endswith(entry(home).name)


def _covers(line: str, address: int) -> bool:
    low, high = (int(x, 16) for x in line.split()[0].split("-"))
    return low <= address < high


def test_a_flipped_byte_anywhere_is_a_new_compilation(home):
    compile_here(home)
    path = entry(home)
    whole = path.read_bytes()
    rng = random.Random(2)
    for place in (*range(0, 64, 5), *rng.sample(range(64, len(whole)), 12), len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        exe = compile_here(home)
        assert not is_hit(exe) and agrees(exe, home), place
        assert path.read_bytes() == whole
    path.write_bytes(whole[: len(whole) // 2])
    assert not is_hit(compile_here(home))
    assert is_hit(compile_here(home))


def test_other_options_knobs_and_processors_are_other_entries(home, monkeypatch):
    compile_here(home)
    assert is_hit(compile_here(home, threads=1))
    assert not is_hit(compile_here(home, profile=True))
    assert not is_hit(compile_here(home, target="x86-64-v2"))
    assert is_hit(compile_here(home, target="x86-64-v2"))
    with options.override(spin_count=77):
        assert not is_hit(compile_here(home))
    with options.override(jobs=3):
        assert is_hit(compile_here(home))
    monkeypatch.setattr(identity, "processor", lambda: "x86_64; flags : fpu sse")
    assert not is_hit(compile_here(home))


def test_another_model_under_the_same_name(home):
    compile_here(home)
    model = small_model()
    model.graph.node[2].op_type = "Neg"
    onnx.save(model, home / "model.onnx")
    exe = compile_here(home)
    assert not is_hit(exe) and not agrees(exe, home)


def test_bytes_are_cached_too_and_what_has_no_digest_is_not(home):
    data = (home / "model.onnx").read_bytes()
    compile_here(home)
    assert is_hit(ingot.compile(data))
    assert not is_hit(ingot.compile(onnx.load_from_string(data), jobs=1))


def test_a_dump_sees_every_stage(home):
    compile_here(home)
    with options.override(dump_dir=str(home / "dump")):
        assert "lower" in compile_here(home).times_s
    assert len(os.listdir(home / "dump")) > 10


@pytest.fixture
def outside(home):
    onnx.save(
        small_model(), home / "model.onnx", save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip
    return home


def test_outside_data_is_part_of_the_model(outside):
    compile_here(outside)
    exe = compile_here(outside)
    assert is_hit(exe) and agrees(exe, outside)
    weights = outside / "weights.bin"
    data = bytearray(weights.read_bytes())
    data[3] ^= 0x80  # another sign for the first weight
    weights.write_bytes(data)
    asked = cache.why(outside / "model.onnx", api.key_options())
    assert not asked.is_found and "weights.bin" in asked.reason
    exe = compile_here(outside)
    assert not is_hit(exe) and not agrees(exe, outside)
    assert is_hit(compile_here(outside))


def test_a_large_files_digest_is_remembered_until_it_changes(home):
    path = home / "large.bin"
    path.write_bytes(bytes(2 << 20))
    old = time.time() - 100
    os.utime(path, (old, old))
    first = cache.file_digest(str(path))
    with open(path, "r+b") as file:
        file.write(b"x")
    os.utime(path, (old, old))  # same size, same time of change as far as anyone can set it
    assert cache.file_digest(str(path)) != first


LITTLE_DISK = """
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
warnings.simplefilter("always")
"""


def test_no_room_on_the_disk(home):
    """A limit on the size of files makes write() fail as a full disk does."""
    code = RUN.replace("import json, sys", "import json, sys, resource, warnings")
    code = code.replace("import ingot", LITTLE_DISK + "import ingot")
    command = [sys.executable, "-c", code, str(home)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=options.child_environment()
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("CacheWarning") == 1 and os.strerror(errno.EFBIG) in done.stderr
    assert not list((home / "cache").rglob(".tmp-*"))


# --- for people -------------------------------------------------------------------------------


def test_why_names_what_differs(home):
    path = home / "model.onnx"
    empty = cache.why(path, api.key_options())
    assert not empty.is_found and empty.reason and not empty.differences
    compile_here(home)
    assert cache.why(path, api.key_options()).is_found
    other = cache.why(path, api.key_options("x86-64-v2", profile=True))
    assert not other.is_found
    assert {d[0] for d in other.differences} == {"target", "profile"}
    assert ("target", "x86-64-v2", "cpu") in other.differences
    with options.override(opt_level=1):
        (row,) = cache.why(path, api.key_options()).differences
        assert row == ("INGOT_OPT_LEVEL", 1, 3)
    with options.override(cache_dir="off"):
        assert "off" in cache.why(path, api.key_options()).reason


def test_size_and_clear(home):
    assert cache.size().total_bytes == 0
    exe = compile_here(home)
    found = cache.size()
    assert found.kinds["models"] == (1, entry(home).stat().st_size)
    assert found.kinds["kernels"][0] == len(os.listdir(home / "cache" / "kernels"))
    assert cache.clear() == found and cache.size().total_bytes == 0
    assert agrees(exe, home)  # what it has mapped stays


def test_a_model_larger_than_the_limit_is_compiled_without(home):
    with options.override(cache_limit_bytes=4000):
        assert agrees(compile_here(home), home)
        assert cache.size().total_bytes <= 4000
        assert not is_hit(compile_here(home))
