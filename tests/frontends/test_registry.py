"""Importers are found by what they accept, also those of other packages; their digests are keys."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import api, cache, frontends
from ingot.support import options
from tests.small import small_model

IMPORTER = """
import numpy as np
from ingot.graph.builder import GraphBuilder
from ingot.graph.types import tensor
from ingot import dtypes
from ingot.support.file_digest import ModelIdentity

class Doubling:
    name = "doubling"
    def accepts(self, model):
        return isinstance(model, dict) and "factor" in model
    def identity(self, model):
        return ModelIdentity(repr(model))
    def import_model(self, model, store, shapes, kernels, example):
        g = GraphBuilder("doubling", store)
        x = g.input("x", tensor(dtypes.f32, 3))
        return g.finish([g.add("mul", [x, g.constant(np.float32(model["factor"]))])])
    def dim_names(self, model):
        return {"x": ("",)}

IMPORTER = Doubling()
"""


def install(path: Path, module: str, code: str, entry: str) -> None:
    (path / f"{module}.py").write_text(code)
    info = path / f"{module}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[ingot.frontends]\n{entry}\n")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_built_in_importer_takes_files_bytes_and_protos() -> None:
    proto = small_model()
    for model in (proto, proto.SerializeToString(), "model.onnx", Path("a/model.onnx")):
        assert frontends.find(model).accepts(model)
        assert frontends.find(model).name == "onnx"
    assert not frontends.find(proto).accepts("model.pt2")
    assert frontends.find(12.5).name == "onnx", "the default one reports the error"


def test_finding_an_importer_is_light(path: Path) -> None:
    import subprocess

    code = "import sys; from ingot import frontends; frontends.find('m.onnx').identity('m.onnx')"
    code += "; found = {'onnx', 'ingot.graph', 'llvmlite'} & set(sys.modules); assert not found"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_importer_of_another_package(path: Path) -> None:
    install(path, "doubling_importer", IMPORTER, "doubling = doubling_importer:IMPORTER")
    model = {"factor": 4.0}
    assert frontends.find(model).name == "doubling"
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(ingot.compile(model)(x)[0], 4 * x)
    with options.override(cache_dir=str(path / "cache"), cache_models=True):
        first = cache.request(model, api.key_options())
        other = cache.request({"factor": 5.0}, api.key_options())
    assert first is not None and other is not None and first.key != other.key
    assert first.fields["importer"][:2] == ["doubling", "1.5"]


def test_a_broken_importer_breaks_nothing_else(path: Path) -> None:
    install(path, "broken_importer", "raise RuntimeError('no parser')", "bad = broken_importer:I")
    found = {entry.plugin.name: entry for entry in frontends.installed()}
    assert found["bad"].loaded is None and "no parser" in found["bad"].error
    assert found["onnx"].loaded is not None
    assert frontends.find("weights.bin").name == "onnx"
