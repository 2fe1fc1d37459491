"""The rewrite engine of every IR. In: a term, named rules, a TermProtocol. Out: a term.

    x, c, d = Variable("x"), Variable("c", as_int), Variable("d", as_int)
    Rule("mod_of_multiple", (x * c) % d, lambda: 0, when=lambda c, d: c % d == 0)

A rule is a row of data: a name, a pattern, a replacement and a condition. `build` and `when` name
their arguments: a pattern variable, `term` (the whole match) or `facts` (the caller's analysis:
value ranges, a graph's users). A `build` that returns None did not apply.

A term is any type with a `TermProtocol`. `ingot.arith.rules` rewrites integer expressions; graph
rules use operator names as heads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ingot.support.errors import IngotError

T = TypeVar("T")
RESERVED = ("term", "facts")


class TermProtocol(Protocol[T]):
    """Access to the head and children of a term, and how to rebuild one."""

    def head(self, term: T) -> Hashable: ...

    def children(self, term: T) -> Sequence[T]: ...

    def rebuild(self, term: T, children: Sequence[T]) -> T: ...

    def literal(self, value: Any) -> T:
        """A plain value of a pattern or of a `build` as a term; terms are returned unchanged."""
        ...


class Pattern:
    """Patterns are written as algebra; `op` makes one with any other head."""

    def __add__(self, other: Any) -> Pattern:
        return op("add", self, other)

    def __radd__(self, other: Any) -> Pattern:
        return op("add", other, self)

    def __sub__(self, other: Any) -> Pattern:
        return op("sub", self, other)

    def __rsub__(self, other: Any) -> Pattern:
        return op("sub", other, self)

    def __mul__(self, other: Any) -> Pattern:
        return op("mul", self, other)

    def __rmul__(self, other: Any) -> Pattern:
        return op("mul", other, self)

    def __truediv__(self, other: Any) -> Pattern:
        return op("div", self, other)

    def __floordiv__(self, other: Any) -> Pattern:
        return op("floordiv", self, other)

    def __mod__(self, other: Any) -> Pattern:
        return op("mod", self, other)


@dataclass(frozen=True)
class Variable(Pattern):
    """Matches any term; with `view`, binds view(term) and matches unless that is None.

    A variable that occurs twice in a pattern must match equal values.
    """

    name: str
    view: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Op(Pattern):
    """Matches a term with this head and matching children; `name` also binds the term itself."""

    head: Hashable
    children: tuple[Pattern, ...]
    name: str = ""

    def named(self, name: str) -> Op:
        return Op(self.head, self.children, name)


@dataclass(frozen=True)
class Literal(Pattern):
    value: Any


def op(head: Hashable, *children: Any) -> Op:
    """The pattern head(children…); plain values are literals."""
    return Op(head, tuple(c if isinstance(c, Pattern) else Literal(c) for c in children))


@dataclass(frozen=True)
class Rule:
    """pattern → build(…) where `when(…)` holds."""

    name: str
    pattern: Pattern
    build: Callable[..., Any]
    when: Callable[..., bool] | None = None
    _build_needs: tuple[str, ...] = field(init=False, repr=False)
    _when_needs: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = {*variables(self.pattern), *RESERVED}
        object.__setattr__(self, "_build_needs", _needs(self, self.build, known))
        object.__setattr__(self, "_when_needs", _needs(self, self.when, known))

    def apply(self, term: T, terms: TermProtocol[T], facts: Any = None) -> T | None:
        """The rewritten term, or None where the rule does not apply."""
        bound: dict[str, Any] = {}
        if not _match(self.pattern, term, terms, bound):
            return None
        bound["term"], bound["facts"] = term, facts
        if self.when is not None and not self.when(*[bound[n] for n in self._when_needs]):
            return None
        built = self.build(*[bound[n] for n in self._build_needs])
        return None if built is None else terms.literal(built)


def variables(pattern: Pattern) -> list[str]:
    """The names that a pattern binds, from left to right."""
    match pattern:
        case Variable(name=name):
            return [name]
        case Op(children=children, name=name):
            inner = [n for child in children for n in variables(child)]
            return [name, *inner] if name else inner
    return []


def _needs(rule: Rule, function: Callable[..., Any] | None, known: set[str]) -> tuple[str, ...]:
    if function is None:
        return ()
    names = tuple(inspect.signature(function).parameters)
    unknown = [n for n in names if n not in known]
    if unknown:
        raise ValueError(f"rule {rule.name}: {unknown} are not in its pattern (it has {known})")
    return names


def _match(pattern: Pattern, term: Any, terms: TermProtocol, bound: dict[str, Any]) -> bool:
    match pattern:
        case Variable(name=name, view=view):
            value = term if view is None else view(term)
            if value is None:
                return False
            if name in bound:
                return bool(bound[name] == value)
            bound[name] = value
            return True
        case Op(head=head, children=wanted, name=name):
            if terms.head(term) != head:
                return False
            found = terms.children(term)
            if len(found) != len(wanted):
                return False
            if name:
                bound[name] = term
            return all(_match(p, t, terms, bound) for p, t in zip(wanted, found))
        case Literal(value=value):
            return bool(term == terms.literal(value))
    return False


class RuleSet(Generic[T]):
    """Rules indexed by the head of their pattern; earlier rules have priority."""

    def __init__(self, rules: Iterable[Rule], terms: TermProtocol[T]):
        self.rules = tuple(rules)
        self.terms = terms
        self._by_head: dict[Hashable, list[Rule]] = {}
        heads = {r.pattern.head for r in self.rules if isinstance(r.pattern, Op)}
        for head in heads:
            self._by_head[head] = [r for r in self.rules if _may_match(r, head)]
        self._anywhere = [r for r in self.rules if not isinstance(r.pattern, Op)]

    def first(self, term: T, facts: Any = None) -> tuple[Rule, T] | None:
        """The first rule that applies to `term` at its root, and the result."""
        for rule in self._by_head.get(self.terms.head(term), self._anywhere):
            built = rule.apply(term, self.terms, facts)
            if built is not None and built != term:
                return rule, built
        return None


def _may_match(rule: Rule, head: Hashable) -> bool:
    return not isinstance(rule.pattern, Op) or rule.pattern.head == head


def rewrite(
    term: T,
    rules: RuleSet[T] | Iterable[Rule],
    terms: TermProtocol[T],
    facts: Any = None,
    max_steps: int = 10_000,
) -> T:
    """The fixed point of the rules on `term`, bottom-up."""
    ready = rules if isinstance(rules, RuleSet) else RuleSet(rules, terms)
    return _Rewriter(ready, facts, max_steps).visit(term)


class _Rewriter(Generic[T]):
    """Bottom-up on an explicit stack: graphs are deeper than Python's recursion limit."""

    def __init__(self, rules: RuleSet[T], facts: Any, max_steps: int):
        self.rules, self.facts, self.steps_left = rules, facts, max_steps
        self.done: dict[Any, T] = {}

    def visit(self, root: T) -> T:
        stack: list[list[T]] = [[root]]  # each frame: a term and its rewritten forms so far
        while stack:
            forms = stack[-1]
            term = forms[-1]
            if term in self.done:
                self.done.update((form, self.done[term]) for form in forms)
                stack.pop()
                continue
            children = self.rules.terms.children(term)
            missing = [child for child in children if child not in self.done]
            if missing:
                stack.extend([child] for child in reversed(missing))
                continue
            better = self._step(term, children)
            if better is None:
                self.done[term] = term
            else:
                forms.append(better)
        return self.done[root]

    def _step(self, term: T, children: Sequence[T]) -> T | None:
        """The term with rewritten children, else the result of a rule, else None."""
        final = [self.done[child] for child in children]
        if any(old is not new and old != new for old, new in zip(children, final)):
            return self.rules.terms.rebuild(term, final)
        step = self.rules.first(term, self.facts)
        if step is None:
            return None
        self.steps_left -= 1
        if self.steps_left < 0:
            raise IngotError(
                "limit",
                f"the rewrite rules do not terminate; the last rule applied was {step[0].name}",
                why="two rules undo each other, or one makes terms grow",
            )
        return step[1]
