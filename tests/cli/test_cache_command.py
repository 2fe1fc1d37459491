"""`ingot cache`, and how the other commands use the cache and plan files. Each test is told a cache
folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.refusal import is_told
from tests.small import answers, small_model

ROOT = Path(__file__).parents[2]


class Shop:
    """A folder with a model, an input and a cache."""

    def __init__(self, folder: Path):
        self.folder, self.model = folder, folder / "small.onnx"
        self.model.write_bytes(small_model().SerializeToString())
        self.x = np.arange(8, dtype=np.float32).reshape(2, 4)
        np.save(folder / "x.npy", self.x)
        self.cache = folder / "cache"

    def ingot(self, *args: object, **environ: str) -> subprocess.CompletedProcess:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("INGOT_")}
        named = {
            "INGOT_CACHE_DIR": str(self.cache),
            "INGOT_CACHE_MODELS": "1",
            "PYTHONPATH": str(ROOT),
            **environ,
        }
        return subprocess.run(
            [sys.executable, "-m", "ingot.cli", *map(str, args)],
            capture_output=True, text=True, cwd=self.folder, env={**kept, **named}, timeout=120,
        )  # fmt: skip

    def said(self, *args: object, exit_code: int = 0) -> dict:
        done = self.ingot(*args, "--json")
        assert done.returncode == exit_code, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_from_empty_to_full_and_back(shop: Shop):
    assert shop.said("cache", "size")["total_bytes"] == 0
    absent = shop.said("cache", "why", shop.model, exit_code=1)
    assert not absent["is_found"] and absent["reason"] and not absent["differences"]
    shop.said("compile", shop.model)
    size = shop.said("cache", "size")
    assert size["folder"] == str(shop.cache) and size["kinds"]["models"]["entries"] == 1
    assert shop.said("cache", "why", shop.model)["is_found"]
    other = shop.said("cache", "why", shop.model, "--shape", "x=2x4", exit_code=1)
    assert other["differences"] == [{"key": "shapes", "requested": {"batch": 2}, "cached": {}}]
    table = shop.ingot("cache", "why", shop.model, "--size", "batch=2")
    assert table.returncode == 1 and "nearest entry" in table.stdout
    assert shop.said("cache", "clear")["kinds"]["models"]["entries"] == 1
    assert shop.said("cache", "size")["total_bytes"] == 0


def test_a_second_run_needs_no_compiler(shop: Shop):
    words = ("run", shop.model, "--input", "x=x.npy", "--save", "out.npz")
    assert shop.ingot(*words).returncode == 0
    found = shop.said("cache", "why", shop.model)
    assert found["is_found"], found
    code = (
        "import sys\nfrom ingot.cli.main import main\n"
        f"main({[str(w) for w in words]!r}, standalone_mode=False)\n"
        "print('LOADED', sorted({'onnx', 'llvmlite', 'ingot.pipeline'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=shop.folder, timeout=60,
        env={**os.environ, "INGOT_CACHE_DIR": str(shop.cache), "INGOT_CACHE_MODELS": "1",
             "PYTHONPATH": str(ROOT), "INGOT_WORK_PER_THREAD_US": "20.0"},
    )  # fmt: skip
    assert "LOADED []" in done.stdout, done.stdout + done.stderr
    got = np.load(shop.folder / "out.npz")["y"]
    np.testing.assert_allclose(got, answers(shop.x)[0], rtol=1e-6)


def test_a_plan_is_made_and_run(shop: Shop):
    assert shop.ingot("compile", shop.model, "--save", "small.plan").returncode == 0
    shop.model.unlink()
    said = shop.said("run", "small.plan", "--input", "x=x.npy")
    assert said["outputs"][0]["max"] == pytest.approx(answers(shop.x)[0].max())
    assert shop.said("run", "small.plan", "--shape", "x=5x4")["outputs"][0]["shape"] == [5, 3]
    failure = shop.ingot("profile", "small.plan")
    assert failure.returncode == 2 and is_told("small.plan", failure.stderr)


def test_caches_that_are_off(shop: Shop):
    done = shop.ingot("cache", "size", INGOT_CACHE_DIR="off")
    assert done.returncode == 0 and is_told("off", done.stdout)
    why = shop.ingot("cache", "why", shop.model, INGOT_CACHE_DIR="off")
    assert why.returncode == 1 and "INGOT_CACHE_DIR" in why.stdout
    doctor = shop.said("doctor")
    assert {f["name"]: f for f in doctor["findings"]}["cache"]["value"] == str(shop.cache)
