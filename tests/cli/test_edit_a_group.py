"""A fusion group edited in the text between two stages, through the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ingot
from ingot.cli.main import main
from ingot.support.dump import TEXT_VERSION
from tests.small import answers, small_model

WHOLE = """\
    %add: f32[batch, 3] = add(%matmul, %x2)  # node 'bias' (Add)
    %relu: f32[batch, 3] = relu(%add)  # node 'act' (Relu)
    return %relu
  }, family="matmul"}"""

SPLIT = """\
    %add: f32[batch, 3] = add(%matmul, %x2)  # node 'bias' (Add)
    return %add
  }, family="matmul"}
  %y: f32[batch, 3] = fused(%s) {anchor=none, body=graph my_relu(%x0: f32[batch, 3]) {
    %relu: f32[batch, 3] = relu(%x0)  # node 'act' (Relu)
    return %relu
  }, family="elementwise"}"""


def split(text: str) -> str:
    """matmul + add + relu  →  matmul + add, relu"""
    text = edited(text, WHOLE, SPLIT)
    text = edited(
        text, "%y: f32[batch, 3] = fused(%x, %w, %b)", "%s: f32[batch, 3] = fused(%x, %w, %b)"
    )
    return edited(text, "body=graph matmul_add_relu(", "body=graph matmul_add(")


def merged(text: str) -> str:
    """matmul + add + relu, reduce_sum  →  one group of two outputs"""
    text = edited(
        text, "  %y: f32[batch, 3] = fused(", "  %y: f32[batch, 3], %z: f32[batch] = fused("
    )
    text = edited(text, "body=graph matmul_add_relu(", "body=graph everything(")
    inner, after = text.index("    return %relu"), text.index("  return %y, %z")
    total = "    %total: f32[batch] = reduce_sum(%relu) {axes=[1], keepdims=false}  # node 'rows'\n"
    end = '    return %relu, %total\n  }, family="by_structure"}\n'
    return text[:inner] + total + end + text[after:]


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, text
    return text.replace(old, new)


def ingot_command(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> Path:
    """The text after fusion, with its constants beside it."""
    folder = tmp_path_factory.mktemp("dumped")
    model = folder / "small.onnx"
    model.write_bytes(small_model().SerializeToString())
    ingot_command("compile", model, "--dump", folder, "--stop-after", "fuse")
    (text,) = folder.glob("*-fuse.txt")
    return text


@pytest.mark.parametrize(
    ("edit", "kernels"),
    [
        (lambda text: text, ["matmul_add_relu", "reduce_sum"]),
        (split, ["matmul_add", "my_relu", "reduce_sum"]),
        (merged, ["everything"]),
    ],
)
def test_an_edited_group_is_compiled_as_it_is_written(dumped: Path, edit, kernels: list[str]):
    text = dumped.with_name("edited.txt")
    text.write_text(edit(dumped.read_text(encoding="utf-8")), encoding="utf-8")
    plan = dumped.with_name("edited.plan")
    printed = ingot_command(
        "compile", text, "--start-from", "alias_buffers", "--save", plan, "--json"
    )
    nests = [row["kernel"] for row in json.loads(printed)["kernels"]]  # a_0, a_1: nests of kernel a
    found = dict.fromkeys(re.sub(r"(_rows_1)?(_\d+)?$", "", name) for name in nests)
    assert list(found) == kernels
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
    for got, want in zip(ingot.load(plan)(x), answers(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (f"# ingot graph {TEXT_VERSION + 1}", [str(TEXT_VERSION), str(TEXT_VERSION + 1)]),
        (f"# ingot program {TEXT_VERSION}", ["graph", "program"]),
    ],
)
def test_a_dump_of_another_version_or_kind_is_refused(dumped: Path, line: str, facts: list[str]):
    first, _, rest = dumped.read_text(encoding="utf-8").partition("\n")
    assert first == f"# ingot graph {TEXT_VERSION}"
    text = dumped.with_name("other.txt")
    text.write_text(f"{line}\n{rest}", encoding="utf-8")
    done = CliRunner().invoke(main, ["compile", str(text), "--start-from", "alias_buffers"])
    assert done.exit_code and "[bad-text]" in done.output and "line 1" in done.output
    assert all(fact in done.output for fact in facts)


def test_a_group_that_does_not_fit_is_refused(dumped: Path):
    text = dumped.with_name("wrong.txt")
    wrong = edited(dumped.read_text(encoding="utf-8"), 'family="reduce"', 'family="redcue"')
    text.write_text(wrong, encoding="utf-8")
    done = CliRunner().invoke(main, ["compile", str(text), "--start-from", "alias_buffers"])
    assert done.exit_code and "[bad-graph]" in done.output
    assert "'redcue'" in done.output and "'rows'" in done.output
