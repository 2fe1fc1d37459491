"""What a type checker of a user's program sees: the public names, types of results, kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]

PROGRAM = """
from concurrent.futures import Future

import numpy as np

import ingot
import ingot.script as T
from ingot.script import alloc, block, f32, grid, init, size

N = 16
n = size


@ingot.kernel
def product(n: size, A: f32[n, N], B: f32[N, N // 2], C: f32[n, N // 2]) -> None:
    for i, j, k in grid(n, N // 2, N):
        with block("C", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] += A[vi, vk] * B[vk, vj]


@ingot.kernel(name="copy")
def copied(n: T.size[1, 512], A: T.f32[n], B: T.buffer[T.f32[n], "global"]) -> None:
    t = T.alloc(T.f32[4], "register")
    for i in T.parallel(n):
        B[i] = T.select(A[i] > 0.0, T.exp(A[i]), t[0])


def steps(sch: ingot.Schedule) -> None:
    i, j, k = sch.loops(sch.block("C"))
    sch.parallel(i)


fast: ingot.KernelFunction = product.schedule(steps)
options = ingot.Options(jobs=2, verify=False)
exe: ingot.Executable = ingot.compile("model.onnx", shapes={"ids": (1, 128)}, options=options)
with exe as opened:
    x = opened.inputs[0]
    zeros = np.zeros(x.shape, x.dtype)
    future: Future[list[np.ndarray]] = opened.submit(zeros)
    (y,) = opened.run(None, {x.name: zeros})
    freed: int = opened.trim()
try:
    ingot.load("model.plan")
except ingot.IngotError as error:
    print(error.code, error.hint)
"""

WRONG = """
import ingot
from ingot.script import block, grid

exe: int = ingot.compile("model.onnx")
exe2 = ingot.compile("model.onnx", thread=2)
ingot.compile("model.onnx").trin()
ingot.Options(job=2)
for i in block("C", spatial=()):
    pass
with grid(4):
    pass
"""


def check(program: str, folder: Path) -> list[str]:
    (folder / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=",
         "--follow-imports=silent", "--ignore-missing-imports",
         f"--cache-dir={ROOT / '.mypy_cache' / 'user'}", "program.py"],
        cwd=folder, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT)},
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if "error:" in line]


def test_a_users_program(tmp_path: Path):
    assert check(PROGRAM, tmp_path) == []


def test_wrong_programs_are_found(tmp_path: Path):
    found = check(WRONG, tmp_path)
    lines = [line.split(":")[1] for line in found]
    assert list(dict.fromkeys(lines)) == ["5", "6", "7", "8", "9", "11"], found
