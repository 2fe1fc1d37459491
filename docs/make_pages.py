"""Fills the pages' code blocks and tables from the real compiler.

    python docs/make_pages.py            rewrite the pages that have generated blocks
    python docs/make_pages.py --check    list those that are out of date, change nothing

A generated block follows a line `<!-- made: name -->`: a code block, a table, a line that begins
with a number, or headings to the end of the page. The tour's target is a named CPU, so its text is
the same on every machine. tests/docs/ checks that the pages are current.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import ingot
from ingot import api, pipeline
from ingot.cli.main import COMMANDS
from ingot.cli.main import main as command_line
from ingot.cli.options import FAILED, USAGE, USAGE_CODES
from ingot.codegen.llvm import kernel_text
from ingot.frontends.onnx import registry as converters
from ingot.graph.opdef import TABLE as OPERATORS
from ingot.loops.script_print import show as show_kernel
from ingot.passes.fuse import fuse
from ingot.runtime.report import lines, table
from ingot.schedule.default import schedule_kernel
from ingot.support import abi, options
from ingot.support.dump import Dump
from ingot.support.errors import CODES, IngotError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import api_page  # noqa: E402  # in this folder
import operator_page  # noqa: E402
import torch_operator_page  # noqa: E402
from error_examples import EXAMPLES  # noqa: E402

DIGITS = HERE.parent / "examples" / "digits"
PAGES = (
    "tour.md", "pipeline.md", "program.md", "cli.md", "errors.md", "operators.md",
    "torch-operators.md", "api.md", "../README.md",
)  # fmt: skip
TARGET, SHAPES, KERNEL = "x86-64-v3", {"batch": 1}, "matmul_add_relu"


# --- the tour -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def session() -> pipeline.Session:
    return api.make_session(TARGET, SHAPES, jobs=1, dump=Dump())


@cache
def after(stage: str):
    """The IR after a stage; each stage runs once."""
    index = pipeline.position(session().stages, stage)
    value = DIGITS / "digits.onnx" if index == 0 else after(session().stages[index - 1].name)
    return pipeline.run_stages(value, session(), stage, stage)


def imported() -> str:
    return pipeline.show(after("import"))


def simplified() -> str:
    """The end of the graph, where most has happened."""
    lines = pipeline.show(after("dce_2")).splitlines()
    first = next(n for n, line in enumerate(lines) if "max_pool(" in line)
    return "\n".join([lines[0], "  …", *lines[first:]])


def groups() -> str:
    rows = []
    for group in fuse(after("dce_2")).nodes:
        if group.op == "fused":
            ops = " + ".join(node.op for node in group.attr("body").nodes)
            rows.append(f"{ops:20} family {group.attr('family'):12} → {group.outputs[0].name}")
    return "\n".join(rows)


def kernel_after(stage: str) -> Callable[[], str]:
    return lambda: show_kernel(after(stage).kernel_map[KERNEL])


def trace() -> str:
    kernel = after("dedupe_kernels").kernel_map[KERNEL]
    return schedule_kernel(kernel, session().target, kernel.family).trace.text()


def planned() -> str:
    """The planned program without constants and kernels."""
    lines = pipeline.show(after("barriers")).splitlines()
    words = ("program(", "symbol(", "arena(", "buffer(", "run(", "barrier(", "copy(")
    return "\n".join(x for x in lines if x.startswith(words) and "'constant'" not in x)


def llvm() -> str:
    """The inner loop up to its first store."""
    text = kernel_text(after("barriers").kernel_map[KERNEL])
    head, _, rest = text.partition("\nhead")
    inner = ("head" + rest).split("\n")
    last = next(n for n, line in enumerate(inner) if line.startswith("  store"))
    return "\n".join([head.split("\n")[0], "  …", *inner[: last + 1], "  …"])


def report() -> str:
    package = after("codegen")
    return table(lines(package.report, package.machine_model))


def call() -> str:
    """What the page's Python example prints; it runs on this machine, whatever that is."""
    exe = ingot.compile(DIGITS / "digits.onnx", shapes={"batch": 1}, jobs=1)
    data = np.load(DIGITS / "test.npz")
    (logits,) = exe(data["images"][:1])
    said = [exe, logits.round(1) + 0.0, f"digit {logits.argmax()}, label {data['labels'][0]}"]
    return "\n".join(map(str, said))


# --- other pages ----------------------------------------------------------------------------------


def stages() -> str:
    rows = ["| stage | from | to | what it does |", "|---|---|---|---|"]
    rows += [f"| `{s.name}` | {s.takes} | {s.gives} | {s.what} |" for s in session().stages]
    return "\n".join(rows)


def feature_table() -> str:
    rows = ["| name | what it does |", "|---|---|"]
    rows += [f"| `{name}` | {doc} |" for name, doc in options.FEATURES.items()]
    return "\n".join(rows)


def option_table() -> str:
    rows = ["| option | default | what it does |", "|---|---|---|"]
    rows += [
        f"| `{name}` | {default or '(empty)'} | {doc} |"
        for name, default, doc in options.describe()
    ]
    return "\n".join(rows)


def counts() -> str:
    imported = len({op for _, op in converters.TABLE})
    return f"{len(OPERATORS)} operators in the graph, {imported} ONNX operators imported."


def abi_table() -> str:
    records = {n.lower(): v for n, v in vars(abi).items() if n.isupper() and isinstance(v, dict)}
    rows = ["| record | fields (offset) |", "|---|---|"]
    for name, fields in records.items():
        listed = ", ".join(f"`{field}` {offset}" for field, offset in fields.items())
        rows.append(f"| {name} | {listed} |")
    return "\n".join(rows)


def help_of(name: str) -> Callable[[], str]:
    def made() -> str:
        done = CliRunner().invoke(command_line, [name, "--help"], prog_name="ingot")
        return done.stdout.rstrip()

    return made


def errors() -> str:
    """An entry for each code: meaning, advice, the example and what it says."""
    return "\n\n".join(_error_entry(code) for code in CODES)


def _error_entry(code: str) -> str:
    example = EXAMPLES[code]
    try:
        example()
    except IngotError as error:
        said = str(error).replace(str(HERE.parent) + "/", "")
    else:
        raise AssertionError(f"the example of {code} raises nothing")
    advice = " ".join((example.__doc__ or "").split())
    exit_code = USAGE if code in USAGE_CODES else FAILED
    meaning = f"*{CODES[code][0].upper()}{CODES[code][1:]}.* Exit code {exit_code}. {advice}"
    return (
        f"## {code}\n\n{textwrap.fill(meaning, 118, break_on_hyphens=False)}\n\n"
        f"```python\n{_body(example)}\n```\n\n```\n{said}\n```"
    )


def _body(function: Callable) -> str:
    """The statements of a function as they are written, without its docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    first = ast.parse(source).body[0].body[1]  # type: ignore[attr-defined]
    line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", ()))])
    return textwrap.dedent("\n".join(source.splitlines()[line - 1 :])).strip()


BLOCKS: dict[str, Callable[[], str]] = {
    "import": imported,
    "simplified": simplified,
    "groups": groups,
    "lower": kernel_after("lower"),
    "trace": trace,
    "schedule": kernel_after("schedule"),
    "legalize": kernel_after("barriers"),
    "planned": planned,
    "llvm": llvm,
    "report": report,
    "call": call,
    "stages": stages,
    "features": feature_table,
    "options": option_table,
    "counts": counts,
    "abi": abi_table,
    "errors": errors,
    "operators": operator_page.page,
    "api": api_page.page,
    "torch_operators": torch_operator_page.page,
    **{f"help_{name}": help_of(name) for name in COMMANDS},
}
_PART = re.compile(
    r"(?P<mark><!-- made: (?P<name>\w+) -->\n)"
    r"(?P<body>```\w*\n.*?^```$|(?:\|[^\n]*\n?)+|\d[^\n]*\n|## .*?\Z)",
    re.DOTALL | re.MULTILINE,
)


def refresh(text: str) -> str:
    """The page with every generated block made again."""

    def fill(match: re.Match) -> str:
        made = BLOCKS[match["name"]]().rstrip("\n")
        if not match["body"].startswith("`"):
            return match["mark"] + made + "\n"
        fence = match["body"].split("\n", 1)[0]
        return f"{match['mark']}{fence}\n{made}\n```"

    return _PART.sub(fill, text)


def main(arguments: list[str]) -> int:
    stale = []
    for name in PAGES:
        path = HERE / name
        old = path.read_text(encoding="utf-8")
        new = refresh(old)
        if new != old:
            stale.append(name)
            if "--check" not in arguments:
                path.write_text(new, encoding="utf-8")
    verb = "out of date" if "--check" in arguments else "rewritten"
    print(f"{verb}: {', '.join(stale)}" if stale else "all pages are current")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
