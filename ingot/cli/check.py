"""`ingot check model.onnx`: would it compile? Import and type inference only, no code generation.

In: a model or a plan file. Out: operators, inputs and outputs, weights, an estimate of the memory
and the work (facts.py), and the verdict; exit code 1 and all unsupported operators if it is no.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ingot import api, backends
from ingot.cli.options import FAILED, USAGE_CODES, Shapes, command, shapes, some_file
from ingot.cli.output import plain, ports, print_json, print_table
from ingot.runtime import devices, plan_file
from ingot.shapes import named_sizes
from ingot.support import lazy
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError
from ingot.support.text import with_unit

FIELDS = ("code", "what", "where", "why", "hint")
LAST = "dce"  # the stage after which the graph is read: only what outputs depend on counts
NODES_SHOWN = 8  # of an unsupported operator; --json has all


@command("check", has_model=False)
@click.argument("model", type=some_file(exists=True))
@click.option("--target", default="cpu", show_default=True, help="As for ingot compile.")
@click.option("--shape", "--size", "shapes", multiple=True, callback=shapes,
              metavar="NAME=N|LOW:HIGH|AxB",
              help="Sizes of dynamic dimensions, as for ingot compile: the memory and the FLOPs "
              "are those for them.")  # fmt: skip
def check_command(model: Path, target: str, shapes: Shapes, as_json: bool) -> None:
    """Check whether MODEL would compile, without compiling it: its operators, inputs, outputs,
    weights, memory and FLOPs, and all operators that are not supported. Exit code 1 if not."""
    if plan_file.is_plan(str(model)):
        found = _check_plan(model)
    else:
        try:
            found = _check_model(model, target, shapes)
        except IngotError as error:
            if error.code in USAGE_CODES:
                raise
            found = _refused(error)
    print_json({"model": model, **found}) if as_json else _print(model, found)
    if not found["passed"]:
        sys.exit(FAILED)


def _check_model(model: Path, target: str, shapes: Shapes) -> dict[str, Any]:
    facts_of = lazy.load("cli.facts")
    session = api.make_session(target, named_sizes(model, shapes))
    session.store = facts_of.QuickStore()
    graph = lazy.load("pipeline").run_stages(model, session, stop_after=LAST)
    hidden = {*session.store.initial, RANDOM_KEY}  # buffers of a PyTorch module
    found = facts_of.facts(graph)
    return {
        "passed": True,
        "kind": "model",
        "inputs": _values(v for v in graph.inputs if v.name not in hidden),
        "outputs": _values(graph.outputs),
        "dynamic": [s.name for s in graph.symbols if s.source == "input"],
        "data_dependent": [s.name for s in graph.symbols if s.source == "node"],
        "operators": [vars(operator) for operator in found.operators],
        "parameters": found.parameters,
        "weight_bytes": found.weight_bytes,
        "port_bytes": found.port_bytes,
        "activation_bytes": found.live_bytes,
        "flops": found.flops,
        "has_loops": found.has_loops,
        "target": target,
        "runs_here": not backends.find(target).why_not_here(session.target),
    }


def _values(values: Any) -> list[dict[str, Any]]:
    return [{"name": v.name, "dtype": v.dtype.name, "shape": list(v.shape)} for v in values]


def _refused(error: IngotError) -> dict[str, Any]:
    return {
        "passed": False,
        "kind": "model",
        "error": {name: getattr(error, name) for name in FIELDS},
        "unsupported": getattr(error, "nodes", {}),
    }


def _check_plan(path: Path) -> dict[str, Any]:
    """A plan is compiled already: the question is whether it runs here."""
    package = plan_file.read(str(path)).package
    obstacle = devices.why_not(package)
    return {
        "passed": not obstacle,
        "kind": "plan",
        "inputs": ports(package.inputs),
        "outputs": ports(package.outputs),
        "weight_bytes": package.constants.nbytes,
        "kernels": len(package.kernel_names),
        "launches": len(package.launches),
        "why_not": obstacle,
    }


# --- text -----------------------------------------------------------------------------------------


def _print(model: Path, found: dict[str, Any]) -> None:
    if "error" in found:
        _print_refusal(model, found)
    elif found["kind"] == "plan":
        _print_plan(model, found)
    else:
        _print_model(model, found)


def _print_refusal(model: Path, found: dict[str, Any]) -> None:
    click.echo(f"{model.name} would not compile.\n")
    if found["unsupported"]:
        rows = [
            (operator, str(len(nodes)), ", ".join(nodes[:NODES_SHOWN]) + _more(nodes))
            for operator, nodes in found["unsupported"].items()
        ]
        print_table(("unsupported operator", "nodes", "names"), rows)
        click.echo(f"\ntry: {found['error']['hint']}")
        return
    click.echo(str(IngotError(found["error"].pop("code"), found["error"].pop("what"),
                              **found["error"])))  # fmt: skip


def _more(nodes: list[str]) -> str:
    left = len(nodes) - NODES_SHOWN
    return f" and {left} more" if left > 0 else ""


def _print_plan(model: Path, found: dict[str, Any]) -> None:
    rows = _port_rows(found)
    rows.append(("weights", with_unit(found["weight_bytes"], "B")))
    rows.append(("code", f"{found['kernels']} kernels, {found['launches']} launches"))
    print_table(("", "value"), rows)
    verdict = f"does not run here: {found['why_not']}" if found["why_not"] else "runs here"
    click.echo(f"\n{model.name} is a plan, compiled already; it {verdict}.")


def _print_model(model: Path, found: dict[str, Any]) -> None:
    operators = [
        (row["name"], str(row["nodes"]), ", ".join(row["becomes"])) for row in found["operators"]
    ]
    print_table(("operator", "nodes", "in Ingot"), operators)
    click.echo()
    rows = _port_rows(found)
    rows.append(("parameters", f"{found['parameters']:,}"))
    rows.append(("weights", with_unit(found["weight_bytes"], "B")))
    depends = "depends on " + ", ".join((*found["dynamic"], *found["data_dependent"]))
    unknown = depends + "".join(f"; --shape {name}=N" for name in found["dynamic"][:1])
    sizes = {
        "inputs, outputs": found["port_bytes"],
        "activations": found["activation_bytes"],
    }
    for name, size in sizes.items():
        rows.append((f"{name}", unknown if size is None else with_unit(size, "B")))
    flops = found["flops"]
    rows.append(("FLOPs", unknown if flops is None else with_unit(flops, "FLOP")))
    print_table(("", "value"), rows)
    if found["has_loops"]:
        click.echo("\nThe body of a loop is counted once, and both branches of a condition.")
    where = "" if found["runs_here"] else ", for another machine than this one"
    click.echo(f"\n{model.name} would compile{where}.")


def _port_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (what, f"{port['name']}: {port['dtype']}[{', '.join(map(str, plain(port['shape'])))}]")
        for what in ("inputs", "outputs")
        for port in found[what]
    ]
