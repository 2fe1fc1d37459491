"""The entries of docs/api.md: what is public, with signatures and docstrings as they are.

In: `ingot.__all__` and the classes that its functions give. Out: the block `api` of make_pages.py.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ingot

sys.path.insert(0, str(Path(__file__).parents[1]))
from ingot.inspect.verify import Report
from ingot.runtime.module_call import ModuleExecutable
from ingot.runtime.ports import PortInfo
from ingot.runtime.profile import Profile
from ingot.support import options
from ingot.support.errors import CODES

ENTRIES: dict[str, Any] = {
    "ingot.compile": ingot.compile,
    "ingot.load": ingot.load,
    "ingot.Executable": ingot.Executable,
    "exe.inputs, exe.outputs": PortInfo,
    "exe of a PyTorch module": ModuleExecutable,
    "exe.profile(…)": Profile,
    "ingot.verify": ingot.verify,
    "report of ingot.verify": Report,
    "ingot.State": ingot.State,
    "ingot.Options": ingot.Options,
    "ingot.kernel": ingot.kernel,
    "ingot.KernelFunction": ingot.KernelFunction,
    "ingot.Schedule": ingot.Schedule,
    "ingot.kernels.parse": ingot.kernels.parse,
    "ingot.kernels.wrap": ingot.kernels.wrap,
    "ingot.IngotError": ingot.IngotError,
}
MADE_BY_INGOT = (ingot.Executable, PortInfo, ModuleExecutable, Profile, ingot.State)
OPERATORS = ("__call__", "__getitem__", "__enter__")
# what the package's own modules need of these classes, and what says nothing to a reader
INTERNAL = {
    "run_with", "remake", "with_ir", "at_loop", "at_block", "grown", "in_use", "finished", "of",
    "port", "signature",
}  # fmt: skip
WIDTH = 100


def page() -> str:
    return "\n\n".join(_entry(name, thing) for name, thing in ENTRIES.items())


def _entry(name: str, thing: Any) -> str:
    parts = [f"## {name}"]
    if not inspect.isclass(thing):
        return "\n\n".join([*parts, _code(_function(thing.__name__, thing))])
    head = f"class {thing.__name__}"
    if thing not in MADE_BY_INGOT and thing is not ingot.Options:
        head = _signature(head, thing)
    parts.append(_code([head, *_indented(_doc(thing))]))
    if thing is ingot.Options:
        parts.append(_option_table())
    if thing is ingot.IngotError:
        parts.append(_code_table())
    members = [line for member in _members(thing) for line in (*member, "")]
    return "\n\n".join([*parts, *([_code(members[:-1])] if members else [])])


def _code(lines: list[str]) -> str:
    return "\n".join(["```py", *lines, "```"])


def _doc(thing: Any) -> list[str]:
    text = inspect.getdoc(thing)
    assert text, f"{thing} is public and has no docstring"
    return f'"""{text}"""'.splitlines()


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def _function(name: str, function: Any) -> list[str]:
    return [*_signature(f"def {name}", function).splitlines(), *_indented(_doc(function))]


class _Plain(str):
    """An annotation, which is a string here, without quotes."""

    __repr__ = str.__str__


def _signature(head: str, thing: Any) -> str:
    """On one line if it fits, else a line for each parameter."""
    given = inspect.signature(thing)
    parameters = [p.replace(annotation=_plain(p.annotation)) for p in given.parameters.values()]
    given = given.replace(parameters=parameters, return_annotation=_plain(given.return_annotation))
    line = f"{head}{given}"
    if len(line) <= WIDTH:
        return line
    rows, names_only = (
        list[str](),
        {p.kind for p in parameters} & {inspect.Parameter.VAR_POSITIONAL},
    )
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not names_only:
            rows.append("    *,")
            names_only = {parameter.kind}
        rows.append(f"    {parameter},")
    gives = "" if given.return_annotation is given.empty else f" -> {given.return_annotation}"
    return "\n".join([f"{head}(", *rows, f"){gives}"])


def _plain(annotation: Any) -> Any:
    return _Plain(annotation) if isinstance(annotation, str) else annotation


def _members(thing: type) -> Iterator[list[str]]:
    for name in dir(thing):
        owner = next((kind for kind in thing.__mro__ if name in vars(kind)), object)
        is_public = not name.startswith("_") or name in OPERATORS
        if not is_public or name in INTERNAL or not owner.__module__.startswith("ingot"):
            continue
        if thing is ModuleExecutable and owner is not ModuleExecutable:
            continue  # the executable's own
        member = inspect.getattr_static(thing, name)
        if isinstance(member, property):
            gives = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
            yield [f"{name}: {gives}  # a property", *_indented(_doc(member))]
        elif inspect.isfunction(member) and member.__doc__:
            yield _function(name, member)


def _option_table() -> str:
    rows = ["| option | default | what it is | in the environment |", "|---|---|---|---|"]
    rows += [
        f"| `{name.removeprefix('INGOT_').lower()}` | {default or '(empty)'} | {doc} | `{name}` |"
        for name, default, doc in options.describe()
    ]
    return "\n".join(rows)


def _code_table() -> str:
    rows = ["| code | meaning |", "|---|---|"]
    rows += [f"| [`{code}`](errors.md#{code}) | {text} |" for code, text in CODES.items()]
    return "\n".join(rows)
