"""Back ends are found by the target's name; what another package breaks stays with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import api, backends, cache, pipeline
from ingot.backends import registry
from ingot.support import options
from tests.refusal import refused
from tests.small import answers, small_model

BACKEND = """
from ingot import backends

CPU = backends.find("cpu")


class Loud:
    name, device, forms = "loud", "cpu", ()

    def target(self, text):
        return CPU.target("cpu")

    def why_not_here(self, target):
        return ""

    def stages(self, target):
        return CPU.stages(target)

    def source(self, kernel, form, target):
        return ""


BACKEND = Loud()
"""


def install(folder: Path, package: str, text: str, points: str) -> None:
    """A package with entry points, as pip would leave it in a folder on the path."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text(text)
    info = folder / f"{package}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[ingot.backends]\n{points}\n")


@pytest.fixture
def path(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3", "x86-64-v3+avx512f", "cpu+no-fma"])
def test_a_cpu_by_any_name_belongs_to_the_cpu_back_end(target: str):
    assert backends.find(target).name == "cpu"
    stages = pipeline.open_session(target).stages
    assert stages[: len(pipeline.COMMON)] == pipeline.COMMON
    assert stages[-1].gives == "package"


def test_an_unknown_target_is_an_error_that_lists_names():
    with refused("bad-target", "'vax'", hint="x86-64-v3"):
        ingot.compile(small_model(), target="vax")


@pytest.mark.parametrize("target", ["loud", "loud:v2", "loud+more"])
def test_a_back_end_of_another_package(path: Path, target: str):
    install(path, f"loud_{len(target)}", BACKEND, f"loud = loud_{len(target)}:BACKEND")
    assert backends.find(target).name == "loud"
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(ingot.compile(small_model(), target)(x)[0], answers(x)[0], rtol=1e-6)


def test_a_broken_back_end_is_listed_and_breaks_nothing_else(path: Path):
    install(path, "broken", "raise RuntimeError('no such chip')", "bad = broken:BACKEND")
    found = {entry.plugin.name: entry for entry in backends.installed()}
    assert found["cpu"].loaded is not None and found["bad"].loaded is None
    assert "no such chip" in found["bad"].error
    with refused("bad-target", "'bad'", "broken", where="ingot.backends", hint="broken"):
        backends.find("bad")
    x = np.ones((1, 4), np.float32)
    np.testing.assert_allclose(ingot.compile(small_model())(x)[0], answers(x)[0], rtol=1e-6)


def test_doctor_lists_back_ends_with_their_errors(path: Path):
    install(path, "broken", "import nothing_of_that_name", "bad = broken:BACKEND")
    code = f"import sys; sys.path.insert(0, {str(path)!r}); from ingot.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"], capture_output=True, text=True, check=True
    )
    rows = {
        f["name"]: f for f in json.loads(done.stdout)["findings"] if f["section"] == "back ends"
    }
    assert rows["cpu"]["state"] == "ok" and rows["bad"]["state"] == "none"
    assert "nothing_of_that_name" in rows["bad"]["why"] and "1.5" in rows["bad"]["value"]


def test_another_source_of_a_back_end_is_another_cache_key(path: Path, tmp_path: Path):
    install(path, "loud_key", BACKEND, "loud = loud_key:BACKEND")
    model = tmp_path / "m.onnx"
    model.write_bytes(small_model().SerializeToString())
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        first = cache.request(model, api.key_options("loud"))
        assert first.fields["back end"][:2] == ["loud", "1.5"]
        (path / "loud_key" / "__init__.py").write_text(BACKEND + "\n# other\n")
        registry.plugins._foreign_digest.cache_clear()
        second = cache.request(model, api.key_options("loud"))
    assert first.key != second.key != cache.request(model, api.key_options("cpu"))
