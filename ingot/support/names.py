"""Names and shapes that a caller gave, and errors about them: what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from ingot.support.errors import IngotError


class Shape(tuple[int, ...]):
    """On the command line 1x512 is a shape; (1, 512) in Python may also be a range."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The beginning of a hint: the nearest of the names, if one is near."""
    near = difflib.get_close_matches(name, sorted(set(names)), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def check_dimensions(
    given: Collection[str], dimensions: Collection[str], inputs: Collection[str]
) -> None:
    """An error for a name in `shapes` that is no dynamic dimension, or that an input has too."""
    for name in given:
        if name in dimensions:
            if name in inputs:
                raise ambiguous_shape(name)
            continue
        what = f"the model has no dynamic dimension {name!r}"
        hint = did_you_mean(name, [*dimensions, *inputs])
        if name in inputs:
            hint = f'{name!r} is an input, give its whole shape: {{"{name}": (1, …)}}; '
        hint += "its dynamic dimensions are: " + (", ".join(sorted(dimensions)) or "none")
        raise IngotError("bad-option", what, where="shapes", hint=hint)


def ambiguous_shape(name: str) -> IngotError:
    what = f"shapes: {name!r} is the name of an input and of a dimension"
    hint = "give the other inputs' shapes or dimensions, or rename one in the model"
    return IngotError("bad-option", what, hint=hint)
