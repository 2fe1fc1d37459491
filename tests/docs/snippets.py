"""How each code block of the pages is run: what is not here runs as it stands.

python   the blocks of a page are one script, in a folder that has examples/
sh       each block is a script of bash, in such a folder; `python` and `ingot` are these ones
console  a transcript: docs/sessions.py runs it
lists    of `make target` and `python benchmarks/file.py` only: their names are checked
others   are in QUOTES, CHECKED_BY or EXEMPT, by page and first line (or the start of it)
"""

from __future__ import annotations

from dataclasses import dataclass

# Python before a page's own, for names that its prose introduces
SETUP: dict[str, str] = {
    "README.md": "import ingot.torch",  # also where the entry point is not installed
    "docs/from-pytorch.md": "import ingot.torch",
    "docs/add-a-backend.md": """
PASSES = ()
schedule = emit = lambda program, target: program
""",
    "docs/onnx.md": """
import onnx
text = "agraph (float[batch, seq] x) => (float[batch, seq] y) { y = Relu(x) }"
onnx.save(onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> ' + text), "model.onnx")
""",
}

# pages whose Python another test runs, and compares more of: page → test
RUN_BY: dict[str, str] = {
    "docs/kernels.md": "tests/kernels/test_page.py",
    "docs/torch.md": "tests/torch/test_page.py",
    "docs/tour.md": "tests/docs/test_pages.py",
}
# pages with torch run in a process of their own
IN_A_PROCESS = ("README.md", "docs/from-pytorch.md")


@dataclass(frozen=True)
class Row:
    page: str
    starts: str  # of the block's first line
    reason: str  # why it does not run; or the file that it quotes, or the test that checks it


# parts of the source: the file must contain them
QUOTES = (
    Row("docs/add-an-op.md", 'Row("silu"', "ingot/ops/activation.py"),
    Row("docs/add-an-op.md", '@onnx_op("Swish")', "ingot/frontends/onnx/activation.py"),
    Row("docs/onnx.md", '@onnx_op("Transpose")', "ingot/frontends/onnx/movement.py"),
)
CHECKED_BY = (
    Row("docs/kernels.md", "[bad-text]", "tests/kernels/test_page.py"),
    Row("docs/c.md", "#define INGOT_DECLARATIONS_ONLY", "tests/backends/test_c.py"),
    Row("docs/pipeline.md", "ingot show model.onnx", "tests/docs/test_commands.py"),
    Row("docs/loops.md", "@ingot.kernel", "tests/docs/test_texts.py"),
    Row("docs/graph.md", "graph mlp(", "tests/docs/test_texts.py"),
    Row("docs/program.md", "program('picked'", "tests/docs/test_texts.py"),
    Row("docs/schedule.md", "sch = Schedule(kernel)", "tests/docs/test_texts.py"),
    Row("docs/schedule.md", "dot4 = instruction", "tests/docs/test_texts.py"),
)
_SUITE = "the suite runs these tests itself"
EXEMPT = (
    Row("README.md", "make wheel", "builds and installs; tests/test_wheel.py does both"),
    Row("docs/from-pytorch.md", "pip install", "needs a registry"),
    Row("docs/add-an-op.md", "python -m pytest -q tests/ops/test_samples", _SUITE),
    Row("docs/add-an-op.md", "python -m pytest -q tests/ops/test_against", _SUITE),
    Row("docs/add-a-rule.md", "block ──", "a picture"),
    Row("docs/arith.md", "e ::=", "a grammar"),
    Row("docs/c.md", "/*", "the head of a file that tests/backends/test_c.py compiles"),
    Row("docs/c.md", "$ ingot compile", "main.c is the reader's; test_c.py compiles and links one"),
    Row("docs/design-notes.md", "plans=[", "an excerpt, with … in it"),
    Row("docs/frontends.md", "[bad-input]", "an error, shown; docs/errors.md has those that run"),
    Row("docs/onnx.md", "[bad-model]", "errors, shown; docs/errors.md has those that run"),
    Row("docs/onnx.md", "[unsupported-op]", "an error, shown; docs/errors.md has one that runs"),
    Row("docs/onnx.md", "%y: f32[b * t", "a line of a dump"),
    Row("docs/graph.md", "%y: f32[n, 3]", "a line of a dump"),
    Row("docs/graph.md", "%y: f32[4, 6]", "a line of a dump"),
    Row("docs/pipeline.md", "ingot.compile(model", "three ways to write one option"),
    Row("docs/verify.md", "ingot verify", "the reader's model; tests/cli/test_verify.py runs them"),
    Row("docs/verify.md", "total: WRONG", "of a compiler with a planted bug: tests/inspect"),
    Row("docs/tour.md", "ingot show", "the page's first generated block is its output"),
)
