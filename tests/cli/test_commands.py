"""The commands as users run them, on the digits model, a small one and bad input.

Whole ways of use and one case of each exit code are subprocesses; the many small cases call the
same entry in this process, which is quicker.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from ingot.cli.main import main
from tests.models.caches import Cache
from tests.refusal import is_told
from tests.small import answers, small_model

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
DATA = ROOT / "examples" / "digits" / "test.npz"


def ingot(*args: object, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("INGOT_")}
    return subprocess.run(
        [sys.executable, "-m", "ingot.cli.main", *map(str, args)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd or ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **environ},
        timeout=120,
    )


def succeed(*args: object, **options) -> str:
    done = ingot(*args, **options)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "│" not in done.stdout, "plain text in a pipe"
    return done.stdout


def inside(*args: object) -> Result:
    return CliRunner().invoke(main, [*map(str, args)])


def succeed_inside(*args: object) -> str:
    done = inside(*args)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


# --- what works -----------------------------------------------------------------------------------


def test_compile_says_what_was_made():
    said = succeed("compile", DIGITS, "--shape", "batch=1")
    assert "(image: f32[1, 1, 8, 8])" in said and "(logits: f32[1, 10])" in said
    for word in ("legalize", "codegen", "weights", "arena main", "max_pool", "compiled in"):
        assert word in said
    assert "node 'node_linear' (Gemm); node 'node_relu_3' (Relu)" in said


def test_run_on_real_digits(tmp_path: Path):
    data = np.load(DATA)
    np.save(tmp_path / "x.npy", data["images"])
    said = succeed("run", DIGITS, "--input", f"image={tmp_path}/x.npy", "--threads", 2,
                   "--save", tmp_path / "out.npz")  # fmt: skip
    assert "logits" in said and f"f32[{len(data['images'])}, 10]" in said
    logits = np.load(tmp_path / "out.npz")["logits"]
    np.testing.assert_allclose(logits, data["logits"], rtol=1e-3, atol=1e-4)


def test_run_with_feeds_and_random_inputs(small: Path, tmp_path: Path):
    x = np.ones((3, 4), np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    succeed_inside("run", small, "--feeds", tmp_path / "in.npz", "--save", tmp_path / "out.npz")
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], answers(x)[0], rtol=1e-6)
    one, same = (succeed_inside("run", small, "--seed", 7, "--shape", "batch=6") for _ in range(2))
    assert one == same and "f32[6, 3]" in one
    assert succeed_inside("run", small, "--seed", 8, "--shape", "batch=6") != one


def test_a_state_with_a_capacity(tmp_path: Path):
    """Compiled, as a plan, profiled, and again from a dump: the states are not inputs of a run."""
    file, plan, again = (tmp_path / name for name in ("cache.onnx", "cache.plan", "again.plan"))
    cache = Cache()
    onnx.save(cache.proto(), str(file))
    words = [f"--state={old}={new}" for old, new in cache.state.items()] + ["--capacity=16"]
    sizes = ["--size=seq=3", "--size=batch=2"]
    succeed_inside("compile", file, *words, *sizes, "--dump", tmp_path, "--save", plan)
    made = succeed_inside("run", file, *words, *sizes)
    assert "present" not in made and "f32[2, 3, 32]" in made
    assert succeed_inside("run", plan) == made
    (dumped,) = tmp_path.glob("*-lower.txt")
    succeed_inside("compile", dumped, "--start-from", "merge_axes", "--save", again)
    assert again.read_bytes() == plan.read_bytes()
    assert "write_rows" in succeed_inside("profile", file, *words, "--runs", 2)
    assert "--capacity" in inside("run", plan, "--capacity=16").output


def test_show_stages_and_kernels(small: Path):
    assert (
        succeed_inside("show", small, "--stage", "import")
        .splitlines()[1]
        .startswith("graph small(")
    )
    assert "barrier()" in succeed_inside("show", DIGITS, "--target", "x86-64-v3")
    kernel = succeed_inside("show", small, "--stage", "lower", "--kernel", "matmul_add_relu")
    assert kernel.startswith("@ingot.kernel(") and 'family="matmul"' in kernel
    assert "define i32" in succeed_inside(
        "show", small, "--kernel", "matmul_add_relu", "--as", "llvm"
    )
    named = ("--target", "x86-64-v3", "--kernel", "matmul_add_relu", "--as", "asm")
    assert "vfmadd" in succeed_inside("show", small, *named)


def test_a_target_that_is_not_here_is_compiled_and_not_run(small: Path):
    foreign = "x86-64-v3" if os.uname().machine == "aarch64" else "aarch64"
    said = succeed_inside("compile", small, "--target", foreign)
    assert is_told(foreign, said) and "matmul_add_relu" in said
    done = inside("run", small, "--target", foreign)
    assert done.exit_code == 2 and "[bad-target]" in done.stderr
    assert is_told(foreign, done.stderr) and is_told(os.uname().machine, done.stderr)


def test_stop_dump_and_start_again(small: Path, tmp_path: Path):
    lowered = succeed("compile", small, "--dump", tmp_path, "--stop-after", "lower")
    dumped = next(tmp_path.glob("*-lower.txt"))
    assert dumped.read_text(encoding="utf-8") == lowered
    again = succeed_inside(
        "compile", dumped, "--start-from", "merge_axes", "--stop-after", "barriers"
    )
    assert again == succeed_inside("show", small, "--stage", "barriers")
    assert "(x: f32[batch, 4])" in succeed("compile", dumped, "--start-from", "merge_axes")


def test_the_dump_folder_may_come_from_the_environment(small: Path, tmp_path: Path):
    succeed("compile", small, "--stop-after", "import", INGOT_DUMP_DIR=str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00-import.txt", "constants.npz"]


def test_help_and_version():
    for words in (["--help"], ["compile", "--help"], ["run", "--help"], ["show", "--help"]):
        assert "Usage:" in succeed_inside(*words)
    assert "version" in succeed_inside("--version")


def test_a_reader_that_leaves_is_no_error():
    shown = subprocess.Popen(
        [sys.executable, "-m", "ingot.cli.main", "show", str(DIGITS), "--stage", "import"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert shown.stdout is not None and shown.stderr is not None
    shown.stdout.readline()
    shown.stdout.close()
    assert "Traceback" not in shown.stderr.read()
    shown.stderr.close()
    shown.wait()


# --- what is failure ------------------------------------------------------------------------------

USAGE = {  # exit code 2: the command line is at fault
    "no such file": (["run", "nowhere.onnx"], ["'nowhere.onnx'"]),
    "no command": (["frobnicate"], ["'frobnicate'"]),
    "stage": (["show", "M", "--stage", "lwer"], ["--stage", "'lwer'", "lower", "barriers"]),
    "stop stage": (["compile", "M", "--stop-after", "x"], ["--stop-after", "'x'", "lower"]),
    "start stage": (["compile", "M", "--start-from", "x"], ["--start-from", "'x'", "lower"]),
    "order": (
        ["compile", "T", "--start-from", "plan_memory", "--stop-after", "lower"],
        ["[bad-option]", "'plan_memory'", "'lower'"],
    ),
    "shape without value": (["run", "M", "--shape", "batch"], ["'batch'", "NAME=N"]),
    "shape of letters": (["run", "M", "--shape", "batch=many"], ["'many'", "batch=8"]),
    "half a range": (["run", "M", "--shape", "batch=1:"], ["'1:'", "batch=1:512"]),
    "shape twice": (
        ["run", "M", "--shape", "batch=1", "--shape", "batch=2"],
        ["'--shape'", "'batch'"],
    ),
    "size unknown": (
        ["run", "M", "--shape", "bath=1"],
        ["[bad-option]", "'bath'", "try:", "batch"],
    ),
    "state unknown": (["run", "M", "--state", "past=y"], ["[bad-option]", "'past'", "try:", "x"]),
    "input file missing": (
        ["run", "M", "--input", "x=nowhere.npy"],
        ["[bad-option]", "x=nowhere.npy", os.strerror(errno.ENOENT)],
    ),
    "input unknown": (["run", "M", "--input", "image=X"], ["'image'", "try:", "x: f32[batch, 4]"]),
    "save nowhere": (["compile", "M", "--save", "no/m.plan"], ["--save", "'no'"]),
    "outputs nowhere": (["run", "M", "--save", "no/m.npz"], ["--save", "'no'"]),
    "no threads": (["run", "M", "--threads", "0"], ["--threads"]),
    "target": (
        ["compile", "M", "--target", "x86-64-v9"],
        ["[bad-target]", "x86-64-v9", "x86-64-v4"],
    ),
    "kernel unknown": (["show", "M", "--kernel", "k"], ["[bad-option]", "'k'", "matmul_add_relu"]),
    "kernel of a graph": (
        ["show", "M", "--stage", "import", "--kernel", "k"],
        ["[bad-option]", "try:", "lower", "chunk_launches"],
    ),
    "form without kernel": (["show", "M", "--as", "llvm"], ["--as llvm", "--kernel"]),
    "form too early": (
        ["show", "M", "--stage", "lower", "--kernel", "matmul_add_relu", "--as", "asm"],
        ["--as asm", "--stage chunk_launches"],
    ),
}

FAILED = {  # exit code 1: the model, its inputs or its run are
    "no model": (["run", "JUNK"], ["[bad-model]", "JUNK"]),
    "no dump": (["compile", "JUNK", "--start-from", "lower"], ["[bad-text]", "line 1"]),
    "binary dump": (
        ["compile", "M", "--start-from", "plan_memory"],
        ["[bad-text]", "plan_memory", "try:", "--dump", "--start-from"],
    ),
    "plan to show": (["show", "P"], ["[bad-model]", "small.plan", "try:", "ingot run"]),
    "plan to bench": (["bench", "P"], ["[bad-model]", "small.plan", "ingot.load"]),
    "feeds are no npz": (["run", "M", "--feeds", "JUNK"], ["--feeds", "JUNK", ".npy", ".npz"]),
    "feeds are one array": (
        ["run", "M", "--feeds", "X"],
        ["--feeds", "X.npy", "--input NAME=FILE"],
    ),
    "input of wrong shape": (
        ["run", "M", "--input", "x=X"],
        ["[bad-input]", "'x'", "[2, 9]", "[batch, 4]"],
    ),
}


def spell(words: list[str], small: Path) -> list[object]:
    """The words with the files they stand for."""
    junk, array = small.parent / "JUNK", small.parent / "X.npy"
    junk.write_text("this is no model at all\n")
    np.save(array, np.zeros((2, 9), np.float32))
    text = small.parent / "T"
    text.write_text("program('p', inputs=(), outputs=(), names=())\n")
    plan = small.with_suffix(".plan")
    plan.write_bytes(b"INGOTPLN and more")
    files = {"P": plan, "M": small, "JUNK": junk, "X": array, "T": text}
    return [files.get(word, word.replace("=X", f"={array}")) for word in words]


@pytest.mark.parametrize("case", [*USAGE, *FAILED])
def test_refusals(case: str, small: Path):
    code, (words, expected) = (2, USAGE[case]) if case in USAGE else (1, FAILED[case])
    done = inside(*spell(words, small))
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit) and not done.stdout
    for fact in expected:
        assert is_told(fact, done.stderr), f"{fact} is not in:\n{done.stderr}"


@pytest.mark.parametrize("case", ["stage", "size unknown", "no model"])
def test_refusals_of_a_process(case: str, small: Path):
    code, (words, expected) = (2, USAGE[case]) if case in USAGE else (1, FAILED[case])
    done = ingot(*spell(words, small))
    assert done.returncode == code and not done.stdout
    assert "Traceback" not in done.stderr
    assert all(is_told(fact, done.stderr) for fact in expected), done.stderr


def test_an_unknown_knob_in_the_environment(small: Path):
    done = ingot("compile", small, INGOT_JOBBS="2")
    assert done.returncode == 2
    assert is_told("INGOT_JOBBS", done.stderr) and is_told("INGOT_JOBS", done.stderr)
