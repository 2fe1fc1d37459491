"""A model run in every way that Ingot has, against ONNX Runtime: graph interpreter, program
interpreter, compiled code on one thread and two, and a plan file. For models with control flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser

import ingot
from ingot import api, pipeline
from ingot.graph import interp as graph_interp
from ingot.graph import parse, text
from ingot.graph.ir import Graph
from ingot.program import interp as program_interp
from ingot.program import text as program_text
from ingot.program.ir import Program

HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'

Feeds = Mapping[str, Any]


def model_of(source: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + source)


def onnxruntime_outputs(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    return session.run(None, dict(feeds))


def assert_same(got: Any, want: Any) -> None:
    """Equal kinds, lengths, shapes and types; numbers within 1e-5."""
    if want is None or isinstance(want, list):
        assert type(got) is type(want) and len(got or ()) == len(want or ())
        for a, b in zip(got or (), want or ()):
            assert_same(a, b)
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


class EveryWay:
    """A model compiled once, then run on many inputs."""

    def __init__(self, source: str | onnx.ModelProto):
        self.model = model_of(source) if isinstance(source, str) else source
        session = api.make_session()
        names = [stage.name for stage in session.stages]
        after_import, last = names[names.index("import") + 1], names.index("barriers")

        def run(value: Any, start: str | None, stop: str | None) -> Any:
            return pipeline.run_stages(value, session, start_from=start, stop_after=stop)

        self.store = session.store
        self.graph: Graph = run(self.model, None, "import")
        self.program: Program = run(self.graph, after_import, "barriers")
        self.exe = ingot.Executable(run(self.program, names[last + 1], None))
        assert parse.parse(text.show(self.graph)) == self.graph
        assert program_text.parse(program_text.show(self.program)) == self.program

    def check(self, want: Sequence[Any] | None = None, **feeds: Any) -> list[Any]:
        """Every way gives ONNX Runtime's outputs (or `want`); the compiled ones are returned."""
        want = onnxruntime_outputs(self.model, feeds) if want is None else want
        if not self.graph.bundles:
            arrays = [np.asarray(feeds[v.name]) for v in self.graph.inputs]
            assert_same(graph_interp.run(self.graph, self.store, arrays), list(want))
            given = {name: np.asarray(feeds[name]) for name in self.program.inputs}
            assert_same(program_interp.run(self.program, self.store, given), list(want))
        return self.check_compiled(want, **feeds)

    def check_compiled(self, want: Sequence[Any] | None = None, **feeds: Any) -> list[Any]:
        want = onnxruntime_outputs(self.model, feeds) if want is None else want
        for threads in (1, 2):
            self.exe.threads = threads
            got = list(self.exe.run(None, feeds))
            assert_same(got, list(want))
        return got

    def check_saved(self, path: Path, **feeds: Any) -> None:
        self.exe.save(path / "model.plan")
        want = self.exe.run(None, feeds)
        assert_same(list(ingot.load(path / "model.plan").run(None, feeds)), list(want))
