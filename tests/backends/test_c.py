"""Models through the C back end: called from Python, and as C files that a C program calls."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ingot
from ingot import api, pipeline
from ingot.backends.c import save
from ingot.cli.main import main
from ingot.codegen import c_weights
from ingot.codegen.c_program import print_program
from ingot.program import ir
from ingot.runtime.c import compiler
from ingot.runtime.cpu.elf import ObjectFile, undefined_symbols
from ingot.support import options
from tests.models.build import HARD, gather_rows, nonzero_gather
from tests.models.peers import assert_all_agree, onnxruntime_answers
from tests.models.test_hard_kinds import LIMITS
from tests.refusal import refused

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
PAGE = Path(__file__).parents[2] / "docs" / "c.md"
DIGITS = EXAMPLE / "digits.onnx"
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")

CALLER = """
#define INGOT_DECLARATIONS_ONLY
#include "digits.c"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    float *images = malloc(sizeof(float) * 5 * 64), *logits = malloc(sizeof(float) * 5 * 10);
    int64_t sizes[INGOT_SIZES] = {5};
    void *buffers[INGOT_BUFFERS];
    struct ingot_call call = {0};
    int32_t failed;
    if (fread(images, sizeof(float), 5 * 64, stdin) != 5 * 64) return 2;
    buffers[0] = images;
    buffers[1] = logits;
    call.buffers = buffers;
    call.sizes = sizes;
    call.arena = malloc((size_t)ingot_arena_bytes(sizes));
    failed = ingot_run(&call);
    fwrite(logits, sizeof(float), 5 * 10, stdout);
    free(call.arena);
    free(images);
    free(logits);
    return failed;
}
"""


def compile_c(*arguments: object) -> None:
    command = compiler.find()
    assert command is not None, "the tests need a C compiler"
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def digits() -> ingot.Executable:
    return ingot.compile(DIGITS, target="c")


def test_digits_in_python(digits: ingot.Executable, tmp_path: Path) -> None:
    data = np.load(EXAMPLE / "test.npz")
    (logits,) = digits(data["images"])
    np.testing.assert_allclose(logits, data["logits"], rtol=1e-4, atol=1e-4)
    digits.save(tmp_path / "digits.plan")
    (again,) = ingot.load(tmp_path / "digits.plan")(data["images"])
    assert again.tobytes() == logits.tobytes()


def test_digits_in_a_c_program(digits: ingot.Executable, tmp_path: Path) -> None:
    save(digits.package, tmp_path / "digits.c")
    (tmp_path / "caller.c").write_text(CALLER)
    compile_c(*STRICT, tmp_path / "digits.c", tmp_path / "caller.c", "-o", tmp_path / "run")
    data = np.load(EXAMPLE / "test.npz")
    images = np.ascontiguousarray(data["images"][:5])
    done = subprocess.run([tmp_path / "run"], input=images.tobytes(), capture_output=True)
    assert done.returncode == 0
    assert done.stdout == digits(images)[0].tobytes()


def test_the_example_of_the_page(digits: ingot.Executable, tmp_path: Path) -> None:
    blocks = re.findall(r"```c\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = (block for block in blocks if "int main" in block)
    save(digits.package, tmp_path / "digits.c")
    (tmp_path / "caller.c").write_text(example)
    compile_c(*STRICT, tmp_path / "digits.c", tmp_path / "caller.c", "-o", tmp_path / "run")
    done = subprocess.run([tmp_path / "run"], capture_output=True, text=True, check=True)
    (want,) = digits(np.zeros((5, 1, 8, 8), np.float32))
    assert float(done.stdout) == pytest.approx(want[0, 0], abs=1e-5)
    listed = [line for block in blocks for line in block.splitlines() if "buffers[" in line]
    made = (tmp_path / "digits.c").read_text().splitlines()
    assert {line for line in listed if "]: " in line} <= set(made)


@pytest.mark.parametrize("name", ["digits", "loop", "nonzero_gather", "lstm"])
def test_a_file_needs_nothing_but_the_compiler(name: str, tmp_path: Path) -> None:
    """No library, not even C's own; no writeable data; only a freestanding compiler's headers."""
    exe = ingot.compile(DIGITS if name == "digits" else HARD[name]()[0], target="c")
    save(exe.package, tmp_path / "model.c")
    text = (tmp_path / "model.c").read_text()
    included = {line.split()[1] for line in text.splitlines() if line.startswith("#include")}
    assert included == {"<float.h>", "<limits.h>", "<stdbool.h>", "<stddef.h>", "<stdint.h>"}
    flags = (*STRICT, "-ffreestanding", "-fno-stack-protector", "-c")
    compile_c(*flags, tmp_path / "model.c", "-o", tmp_path / "model.o")
    data = (tmp_path / "model.o").read_bytes()
    assert undefined_symbols(data) == []
    assert ObjectFile(data).mutable_sections() == []


@pytest.mark.parametrize("name", HARD)
def test_hard_kinds_in_c(name: str) -> None:
    """Control flow, state, recurrences, data-dependent sizes, narrow numbers."""
    model, feeds = HARD[name]()
    exe = ingot.compile(model, target="c")
    want = onnxruntime_answers(model, feeds)
    for _ in range(2):  # blocks and arenas are used again
        assert_all_agree(exe.run(None, feeds), want, LIMITS.get(name, 1e-4))


def test_data_dependent_sizes_in_c() -> None:
    model, _ = nonzero_gather()
    exe = ingot.compile(model, target="c")
    for kept in (0, 5, 8, 1):
        _, feeds = nonzero_gather(kept)
        assert_all_agree(exe.run(None, feeds), onnxruntime_answers(model, feeds))


def test_a_failure_names_the_node() -> None:
    model, feeds = gather_rows(bad=True)
    with refused("run-failed", where="Gather", hint=False):
        ingot.compile(model, target="c").run(None, feeds)


def test_sizes_that_the_memory_plan_does_not_hold_for() -> None:
    session = api.make_session("c")
    planned = pipeline.run_stages(DIGITS, session, stop_after="barriers")
    (arena,) = planned.arenas
    tight = ir.replace(planned, arenas=(ir.replace(arena, size_bytes=arena.size_bytes % 9),))
    answers = []
    for program in (planned, tight):
        source = print_program(program, 1 << 14)
        text = source.head + c_weights.external(source.constants) + source.body
        loaded = compiler.load(text, "digits")
        loaded.ingot_arena_bytes.restype = ctypes.c_int64
        answers.append(loaded.ingot_arena_bytes((ctypes.c_int64 * 1)(5)))
    assert answers[0] > 0 and answers[1] == -1


def test_large_weights_get_a_file_of_their_own(
    digits: ingot.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_weights, "MAX_EMBEDDED_BYTES", 0)
    save(digits.package, tmp_path / "digits.c")
    assert (tmp_path / "digits.bin").read_bytes() == digits.package.constants.tobytes()
    assert "call->weights" in (tmp_path / "digits.c").read_text().partition("DECLARATIONS_ONLY")[2]
    compile_c(*STRICT, "-c", tmp_path / "digits.c", "-o", tmp_path / "digits.o")


def test_the_command_line_writes_and_shows_c(tmp_path: Path) -> None:
    path = tmp_path / "model.c"
    done = CliRunner().invoke(main, ["compile", str(DIGITS), "--target", "c", "--save", str(path)])
    assert done.exit_code == 0, done.output
    compile_c(*STRICT, "-c", path, "-o", tmp_path / "model.o")
    shown = CliRunner().invoke(
        main, ["show", str(DIGITS), "--target", "c", "--kernel", "matmul_add_0", "--as", "c"]
    )
    assert shown.exit_code == 0, shown.output
    assert "static int32_t kernel(" in shown.stdout and "for (int64_t" in shown.stdout


def test_the_wheel_is_used_where_the_path_has_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ON_PATH", ())
    monkeypatch.setattr(compiler, "find_spec", {"ziglang": "found"}.get)
    assert compiler.find() == compiler.ZIG
    monkeypatch.setattr(compiler, "find_spec", {}.get)
    assert compiler.find() is None


def test_no_compiler_is_an_error_with_a_way_out() -> None:
    with options.override(cc="no-such-compiler"), refused("bad-target", "no-such-compiler", "gcc"):
        ingot.compile(DIGITS, target="c")
    with refused("bad-option"):
        ingot.compile(DIGITS, target="c", profile=True)
