"""The folders' levels: a module imports only from lower ones, siblings do not import each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "ingot"

LEVELS: dict[str, int] = {
    "support": 0, "dtypes": 0, "machine": 0,
    "arith": 1, "target": 1, "script": 1, "strings": 1,
    "loops": 2, "cost": 2, "runtime": 2,
    "graph": 3, "program": 4,
    "ops": 4,
    "frontends": 5, "passes": 5,
    "cache": 6, "shapes": 6, "lower": 6, "schedule": 6,
    "legalize": 7, "plan": 7, "codegen": 7, "build_requests": 7,
    "backends": 8,
    "pipeline": 9, "cli": 9, "api": 9, "kernels": 9, "inspect": 9,
    "build_worker": 10, "torch": 10, "refresh": 10,
    "": 10,
    "onnx_backend": 11,
}  # fmt: skip

# within a level: who may look at whom, and why
ALLOWED = {
    ("loops", "cost"): "a kernel carries the plans of its contractions",
    ("cli", "pipeline"): "the command line drives the stage table",
    ("inspect", "pipeline"): "it runs the stages one by one",
    ("cli", "inspect"): "the command `ingot verify`",
    ("cli", "api"): "the command line uses the same entry points",
}


def room(module: str) -> str:
    """ingot.graph.text → graph"""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_name(path: Path) -> str:
    name = ".".join(("ingot", *path.relative_to(ROOT).with_suffix("").parts))
    return name.removesuffix(".__init__")


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: what only the type checker sees imports nothing."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from runtime_nodes(child)


def imports() -> list[tuple[str, str]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        module = module_name(path)
        for node in runtime_nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            found += [(module, name) for name in names if name.split(".")[0] == "ingot"]
    return found


def test_every_room_has_a_level():
    assert {room(module) for module, _ in imports()} <= LEVELS.keys()


def test_imports_go_down_only():
    wrong = []
    for module, name in imports():
        here, there = room(module), room(name)
        if here == there or (here, there) in ALLOWED:
            continue
        if there not in LEVELS:  # `from ingot import dtypes` names a room in its last part
            there = name.split(".")[-1]
        if LEVELS[there] >= LEVELS[here]:
            wrong.append(f"{module} (level {LEVELS[here]}) imports {name} (level {LEVELS[there]})")
    assert not wrong, "\n".join(wrong)


def test_schedule_rules_decide_nothing():
    """They apply plans: of the cost model they know the types, of the decisions nothing."""
    types = tuple(f"ingot.cost.{name}" for name in ("plan", "shape", "tile"))
    deciding = ("ingot.cost", *(f"ingot.schedule.{x}" for x in ("decide", "table", "default")))
    of_rules = [x for module, x in imports() if module.startswith("ingot.schedule.rules")]
    assert any(x.startswith(types) for x in of_rules)
    assert not [x for x in of_rules if x.startswith(deciding) and not x.startswith(types)]


def test_no_import_cycle():
    """No module needs itself; an import inside a function counts as much as one at the top."""
    modules = {module_name(path) for path in ROOT.rglob("*.py")}
    edges: dict[str, set[str]] = {m: set() for m in modules}
    for module, name in imports():
        target = name if name in modules else name.rpartition(".")[0]
        if target in modules and target != module:
            edges[module].add(target)
    state: dict[str, int] = {}

    def visit(module: str, path: list[str]) -> None:
        state[module] = 1
        for other in sorted(edges[module]):
            if state.get(other) == 1:
                pytest.fail("import cycle: " + " → ".join([*path, module, other]))
            if other not in state:
                visit(other, [*path, module])
        state[module] = 2

    for module in sorted(modules):
        if module not in state:
            visit(module, [])


def test_import_is_light():
    heavy = {"numpy", "onnx", "torch", "llvmlite", "rich", "click"}
    code = f"import sys, ingot; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)
