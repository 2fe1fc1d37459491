"""`ingot cache why | size | clear`: what the caches hold, and why a model is not in them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ingot import api, cache
from ingot.cli.options import FAILED, Shapes, command
from ingot.cli.output import print_json, print_table
from ingot.cli.sizes import named_sizes

_LONG = 40  # characters of a value that are enough to tell it from another


@click.group("cache")
def cache_command() -> None:
    """Look at the caches of compiled kernels and models, or empty them."""


@command("size", has_model=False)
def size_command(as_json: bool) -> None:
    """Say where the caches are and how much they hold."""
    _tell_size(cache.size(), as_json, "")


@command("clear", has_model=False)
def clear_command(as_json: bool) -> None:
    """Drop everything that is cached. Programs that run keep what they have."""
    _tell_size(cache.clear(), as_json, "dropped from ")


def _tell_size(found: cache.Size, as_json: bool, verb: str) -> None:
    if as_json:
        kinds = {k: {"entries": n, "bytes": size} for k, (n, size) in found.kinds.items()}
        print_json({"folder": found.folder, "limit_bytes": found.limit_bytes, "kinds": kinds,
                    "total_bytes": found.total_bytes})  # fmt: skip
        return
    if found.folder is None:
        click.echo("the caches are off (INGOT_CACHE_DIR)")
        return
    click.echo(f"{verb}{found.folder}, at most {found.limit_bytes / 1e6:.0f} MB\n")
    rows = [(kind, str(n), f"{size / 1e6:.1f}") for kind, (n, size) in found.kinds.items()]
    print_table(("kind", "entries", "MB"), rows)


@command("why")
@click.option("--profile", is_flag=True, help="With cycle counters, as ingot profile compiles it.")
def why_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], threads: int | None,
    jobs: int | None, profile: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say whether MODEL with these options comes from the cache, and if not, why. Exit code 1 if
    not. Threads and jobs make no difference."""
    sizes = named_sizes(model, shapes)
    found = cache.why(model, api.key_options(target, sizes, state, profile))
    if as_json:
        parts = [{"part": p, "here": a, "there": b} for p, a, b in found.differences]
        print_json({"is_found": found.is_found, "reason": found.reason, "differences": parts})
    else:
        click.echo(f"{'found' if found.is_found else 'not found'}: {found.reason}")
        if found.differences:
            click.echo()
            rows = [(part, _short(here), _short(there)) for part, here, there in found.differences]
            print_table(("part", "here", "nearest entry"), rows)
    if not found.is_found:
        sys.exit(FAILED)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


for _part in (why_command, size_command, clear_command):
    cache_command.add_command(_part)
