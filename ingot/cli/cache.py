"""`ingot cache why | size | clear`: explain a cache miss, show the caches' size, clear them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ingot import api, cache
from ingot.cli.options import FAILED, Shapes, command
from ingot.cli.output import print_json, print_table
from ingot.shapes import named_sizes

_MAX_WIDTH = 40  # characters of a value in the table


@click.group("cache")
def cache_command() -> None:
    """Show or clear the caches of compiled kernels and models, or explain a cache miss."""


@command("size", has_model=False)
def size_command(as_json: bool) -> None:
    """Show the caches' folder, number of entries and size."""
    _print_size(cache.size(), as_json, "")


@command("clear", has_model=False)
def clear_command(as_json: bool) -> None:
    """Delete all cached kernels and models. Running programs are not affected."""
    _print_size(cache.clear(), as_json, "deleted from ")


def _print_size(found: cache.CacheSize, as_json: bool, verb: str) -> None:
    if as_json:
        kinds = {k: {"entries": n, "bytes": size} for k, (n, size) in found.kinds.items()}
        print_json({"folder": found.folder, "limit_bytes": found.limit_bytes, "kinds": kinds,
                    "total_bytes": found.total_bytes})  # fmt: skip
        return
    if found.folder is None:
        click.echo("caching is off (INGOT_CACHE_DIR)")
        return
    click.echo(f"{verb}{found.folder}, at most {found.limit_bytes / 1e6:.0f} MB\n")
    rows = [(kind, str(n), f"{size / 1e6:.1f}") for kind, (n, size) in found.kinds.items()]
    print_table(("kind", "entries", "MB"), rows)


@command("why")
@click.option("--profile", is_flag=True, help="With cycle counters, as for ingot profile.")
def why_command(
    model: Path, target: str, shapes: Shapes, state: dict[str, str], capacity: int | None,
    threads: int | None, jobs: int | None, profile: bool, as_json: bool,
) -> None:  # fmt: skip
    """Say whether MODEL with these options is cached, or explain the cache miss (exit code 1).
    --threads and --jobs are not part of the cache key."""
    sizes = named_sizes(model, shapes)
    found = cache.why(model, api.key_options(target, sizes, state, profile, capacity))
    if as_json:
        rows = [{"key": k, "requested": a, "cached": b} for k, a, b in found.differences]
        print_json({"is_found": found.is_found, "reason": found.reason, "differences": rows})
    else:
        click.echo(f"cache {'hit' if found.is_found else 'miss'}: {found.reason}")
        if found.differences:
            click.echo()
            cells = [(key, _short(a), _short(b)) for key, a, b in found.differences]
            print_table(("key", "requested", "nearest entry"), cells)
    if not found.is_found:
        sys.exit(FAILED)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"


for _command in (why_command, size_command, clear_command):
    cache_command.add_command(_command)
