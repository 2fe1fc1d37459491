"""HTML for notebooks: what `_repr_html_` of an executable, a graph and a profile is made of.

Every text is escaped. There are no scripts and nothing comes from the network. Colours are the
page's own, or half transparent, so that light and dark themes can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """<style>
.ingot {font: 13px/1.45 system-ui, sans-serif; color: inherit; max-width: 100%}
.ingot h4 {font-size: 14px; font-weight: 600; margin: 0 0 2px; color: inherit}
.ingot .about {opacity: .75; margin: 0 0 8px}
.ingot .scroll {overflow: auto; max-height: 26em; margin: 4px 0 8px; width: fit-content;
  max-width: 100%; scrollbar-color: rgba(128, 128, 128, .6) transparent; scrollbar-width: thin}
.ingot table {border-collapse: collapse; margin: 0; font-size: 12px; color: inherit;
  background: transparent; border: 0}
.ingot th, .ingot td {padding: 2px 10px 2px 0; text-align: left; vertical-align: top;
  white-space: nowrap; border: 0; border-bottom: 1px solid rgba(128, 128, 128, .25);
  background: transparent; color: inherit; max-width: 32em; overflow: hidden;
  text-overflow: ellipsis}
.ingot th {font-weight: 600; border-bottom-color: rgba(128, 128, 128, .6)}
.ingot th.number, .ingot td.number {text-align: right; font-variant-numeric: tabular-nums}
.ingot td.code, .ingot pre {font-family: ui-monospace, SFMono-Regular, Menlo, monospace}
.ingot summary {cursor: pointer; margin: 4px 0}
.ingot .bar {display: inline-block; width: 90px; height: 9px; margin-right: 6px;
  background: rgba(128, 128, 128, .2); border-radius: 2px; vertical-align: middle}
.ingot .value {display: inline-block; min-width: 4.5em; text-align: right;
  font-variant-numeric: tabular-nums}
.ingot .bar span {display: block; height: 9px; background: #4c8dd6; border-radius: 2px}
</style>"""


HINT_LENGTH = 40  # a longer cell may be cut; all of it shows when the mouse is over it


class Html(str):
    """Text that is HTML already; any other is escaped."""


def text(value: object) -> Html:
    return value if isinstance(value, Html) else Html(escape(str(value)))


def page(title: str, about: str, *parts: Html) -> str:
    """A titled block of parts."""
    head = f"<h4>{text(title)}</h4><div class='about'>{text(about)}</div>"
    return f"{_STYLE}<div class='ingot'>{head}{''.join(parts)}</div>"


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = (),
    code: Sequence[int] = (),
) -> Html:  # fmt: skip
    """`numbers`, `code`: columns that are right-aligned, or of names and types."""

    def cell(tag: str, column: int, value: object) -> str:
        shown, hint, kind = text(value), "", ""
        if column in numbers:
            kind = " class='number'"
        elif column in code and tag == "td":
            kind = " class='code'"
        if len(shown) > HINT_LENGTH and not isinstance(value, Html):
            hint = f" title='{shown}'"
        return f"<{tag}{kind}{hint}>{shown}</{tag}>"

    def line(tag: str, cells: Sequence[object]) -> str:
        return f"<tr>{''.join(cell(tag, i, x) for i, x in enumerate(cells))}</tr>"

    top = f"<thead>{line('th', head)}</thead>" if head else ""
    body = "".join(line("td", row) for row in rows)
    return Html(f"<div class='scroll'><table>{top}<tbody>{body}</tbody></table></div>")


def details(summary: str, part: Html) -> Html:
    """A part that is closed at first."""
    return Html(f"<details><summary>{text(summary)}</summary>{part}</details>")


def bar(fraction: float, label: str) -> Html:
    percent = 100 * min(1.0, max(0.0, fraction))
    drawn = f"<span class='bar'><span style='width: {percent:.1f}%'></span></span>"
    return Html(f"{drawn}<span class='value'>{text(label)}</span>")
