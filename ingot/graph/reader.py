"""The lexer: text → tokens, and a cursor over them that knows its line. In: the text of a graph.
Out: tokens for graph/parse.py, the only caller. Comments are skipped but kept: one at the end of a
node's line is the node's origin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ingot.support.errors import IngotError

T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<comment>\#[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*") | (?P<quoted>`(?:[^`\\\n]|\\.)*`)
    | (?P<digest>@\w+)
    | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+) | (?P<int>\d+)
    | (?P<word>[A-Za-z_][\w.]*)
    | (?P<punctuation>->|\.\.|//|[%(){}\[\]<>:;,=+*-])""",
    re.VERBOSE | re.ASCII,
)


@dataclass
class Token:
    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise bad_text(line, f"unexpected character {text[at]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            yield Token(kind, match.group(), line)
        line += match.group().count("\n")
        at = match.end()
    yield Token("end", "", line)


def bad_text(line: int, what: str) -> IngotError:
    return IngotError("bad-text", what, where=f"line {line}")


@dataclass
class Reader:
    tokens: list[Token]
    at: int = 0
    last_line: int = 0
    skipped: dict[int, str] = field(default_factory=dict)  # line → its comment

    @property
    def now(self) -> Token:
        while self.tokens[self.at].kind == "comment":
            self.skipped[self.tokens[self.at].line] = self.tokens[self.at].text
            self.at += 1
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.now
        self.last_line = token.line
        self.at += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is this punctuation or word."""
        found = self.now.text == text and self.now.kind in ("punctuation", "word")
        if found:
            self.take()
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}")

    def kind(self, *kinds: str) -> str:
        if self.now.kind not in kinds:
            raise self.error(f"expected a {' or '.join(kinds)}")
        return self.take().text

    def unquote(self, text: str) -> str:
        """The content of a string token, or a plain word unchanged."""
        if text[0] not in '"`':
            return text
        try:
            return json.loads(f'"{text[1:-1]}"')
        except json.JSONDecodeError as error:
            raise bad_text(self.last_line, f"{text} is not a string: {error.msg}") from error

    def expect_end(self) -> None:
        if self.now.kind != "end":
            raise self.error("expected the end of the text after the graph")

    def error(self, what: str) -> IngotError:
        found = self.now.text or "end of text"
        return bad_text(self.now.line, f"{what}, found {found!r}")

    def many(self, one: Callable[[Reader], T], close: str) -> list[T]:
        """one, one, … up to `close`, which is taken."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(one(self))
        return items

    def origin(self) -> str:
        """The comment on the line of the token just taken, once."""
        _ = self.now  # moves a comment right after the token to `skipped`
        text = self.skipped.pop(self.last_line, "").removeprefix("#").strip()
        try:
            return json.loads(text) if text.startswith('"') else text
        except json.JSONDecodeError:
            return text  # a person's own comment
