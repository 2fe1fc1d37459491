"""The tables of peers.py. In: results. Out: Markdown, and the blocks of the docs filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import result_files as files
from benchmarks.rows import (
    BOUNDS,
    PEERS,
    Entry,
    Row,
    against,
    best_peer,
    error_ratio,
    failures,
    geometric_mean,
    mean_line,
    noise_line,
    row,
    speedup,
)
from ingot.cli.peers.runtimes import BACKEND, MODULE, OURS, TORCH, WITHOUT_WINOGRAD

ROOT = Path(__file__).parents[1]
HEAD = ("model", "Ingot ms", "from the module ms", "ONNX Runtime ms", "OpenVINO ms", "torch ms",
        "speedup vs best peer", "Ingot / Ingot", "p99 ms: Ingot, best peer",
        "without Winograd ms", "of roofline", "error / ONNX Runtime's")  # fmt: skip
LOADING_HEAD = ("model", "Ingot: compile s", "Ingot, cached", "ONNX Runtime", "OpenVINO", "torch")
SHORT_HEAD = ("model", "Ingot ms", "best peer ms", "speedup vs best peer")
TORCH_HEAD = ("model", "Ingot ms", 'backend="ingot" ms', "eager ms", "channels-last ms",
              "compile ms", "freezing ms", "speedup", 'speedup, backend="ingot"',
              "Ingot: compile s", 'backend="ingot": compile s', "torch.compile: s")  # fmt: skip
OVERHEAD_HEAD = ("call", "µs")
NOTHING = "No results of this are in benchmarks/results yet."


def figure(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def milliseconds(time_ms: float | None) -> str:
    return figure(time_ms, ".1f" if time_ms and time_ms >= 10 else ".3f")


def markdown(head: tuple[str, ...], cells: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- cells ----------------------------------------------------------------------------------------


def time_cell(entry: Entry | None, most: int = 0) -> str:
    """The time; in parentheses the number of threads, where it is not the most, and for torch which
    of its variants it is."""
    if entry is None:
        return "-"
    if entry.get("failure"):
        return "failed"
    notes = [entry["runtime"].removeprefix("torch-")] if entry["runtime"] in TORCH else []
    threads = entry["threads"]
    notes += [f"{threads} thread{'s' * (threads > 1)}"] if threads < most else []
    return milliseconds(entry.get("time_ms")) + (f" ({', '.join(notes)})" if notes else "")


def full_cells(row: Row) -> tuple[str, ...]:
    best = row["best"]
    if "error" in row:
        return (f"{row['model']} ({row['error']})", *("-" * (len(HEAD) - 1)))
    most, ours = max(entry["threads"] for entry in row["entries"]), best[OURS]
    without, fraction = against(row, WITHOUT_WINOGRAD), row["roofline"]
    return (
        row["model"] + (" ᵂ" if "winograd" in ours.get("uses", ()) else ""),
        time_cell(ours, most) + _differs(ours),
        time_cell(best.get(MODULE), most),
        *(time_cell(best.get(name), most) for name in PEERS),
        figure(row["speedup"], ".2f"),
        figure(row["noise"], ".2f"),
        _p99(ours, best_peer(best)),
        milliseconds(without and without * ours["time_ms"]),
        f"{100 * fraction[0]:.0f} % of {BOUNDS[fraction[1]]}" if fraction else "-",
        figure(error_ratio(row), ".1f"),
    )


def _differs(entry: Entry) -> str:
    return f" DIFFERS {entry['distance']:.0e}" if entry.get("agrees") is False else ""


def _p99(ours: Entry, peer: Entry | None) -> str:
    both = [entry.get("p99_ms") if entry else None for entry in (ours, peer)]
    return "-" if both == [None, None] else ", ".join(map(milliseconds, both))


def loading_cells(row: Row) -> tuple[str, ...]:
    """seconds to load / milliseconds of the first call / MB at most."""
    best = row["best"]
    ours = best.get(OURS, {})
    cached = {**ours, "load_s": ours.get("cached_s")}
    rest = (_loading(best.get(name, {})) for name in PEERS)
    return row["model"], figure(ours.get("load_s"), ".1f"), _loading(cached), *rest


def _loading(entry: Entry) -> str:
    if entry.get("load_s") is None or entry.get("failure"):
        return "-"
    first_ms = 1e3 * entry["first_s"]
    megabytes = figure((entry.get("peak_bytes") or 0) / 1e6 or None, ".0f")
    return f"{entry['load_s']:.2f} / {first_ms:.{0 if first_ms >= 10 else 1}f} / {megabytes}"


def short_cells(row: Row) -> tuple[str, ...]:
    best = row["best"]
    peer = best_peer(best)
    shown = f"{milliseconds(peer['time_ms'])} ({peer['runtime']})" if peer else "-"
    return row["model"], time_cell(best.get(OURS)), shown, figure(row.get("speedup"), ".2f")


def torch_cells(row: Row) -> tuple[str, ...]:
    best = row["best"]
    variants = (best.get(name) for name in TORCH)
    times = [milliseconds(e["time_ms"]) if e and e.get("time_ms") else "-" for e in variants]
    compiled = [figure(compile_s(row, name), ".1f") for name in (OURS, BACKEND, "torch-compile")]
    return (
        row["model"],
        time_cell(best.get(OURS)),
        time_cell(best.get(BACKEND)),
        *times,
        figure(row.get("speedup"), ".2f"),
        figure(speedup(best, BACKEND), ".2f"),
        *compiled,
    )


def compile_s(row: Row, name: str) -> float | None:
    """Until the first call is done, with empty caches."""
    entry = row["best"].get(name, {})
    return None if entry.get("load_s") is None else entry["load_s"] + entry["first_s"]


def torch_line(rows: Sequence[Row]) -> str:
    parts = []
    for name, words in ((OURS, "ingot.compile"), (BACKEND, 'torch.compile(backend="ingot")')):
        ratios = [(x, each["model"]) for each in rows if (x := speedup(each["best"], name))]
        pairs = [(compile_s(each, name), compile_s(each, "torch-compile")) for each in rows]
        parts_of = [ours / theirs for ours, theirs in pairs if ours and theirs]
        if ratios and parts_of:
            low, model = min(ratios)
            mean = geometric_mean([ratio for ratio, _ in ratios])
            parts.append(
                f"{words}: geometric mean {mean:.2f}, lowest {low:.2f} ({model}); compiling takes "
                f"{geometric_mean(parts_of):.2f} of torch.compile's time, {max(parts_of):.2f} at "
                "most"
            )
    return "Versus the best of torch's variants. " + ". ".join(parts) + "."


# --- tables ---------------------------------------------------------------------------------------


def about_line(results: dict[str, Any]) -> str:
    about = results["about"]
    versions: dict[str, str] = {}
    for entry in (e for model in results["models"] for e in model.get("entries", ())):
        if entry["version"]:
            versions.setdefault(entry["runtime"].partition("-")[0], entry["version"])
    made = " ".join(filter(None, (about["date"], about["commit"])))
    made += f", {about['minutes']:.0f} minutes" if "minutes" in about else ""
    return (
        f"{about['processor']}, {about['cores']} cores, {about['isa']} ({about['vectors']}); "
        f"Python {about['python']}, {about['llvm']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f". {about['rounds']} rounds, threads {about['threads']}: `{about['command']}`, {made}."
    )


def full(results: dict[str, Any]) -> str:
    rows = [row(model) for model in results["models"]]
    lines = [mean_line(rows), noise_line(rows), *failures(rows), about_line(results)]
    return "\n\n".join([markdown(HEAD, map(full_cells, rows)), *lines])


def loading(results: dict[str, Any]) -> str:
    rows = [row(model) for model in results["models"]]
    plain = [each for each in rows if "torch" in each["best"]] or rows
    return markdown(LOADING_HEAD, map(loading_cells, plain))


def short(results: dict[str, Any]) -> str:
    rows = [row(model) for model in results["models"]]
    single = [each for each in rows if "-" not in each["model"]]
    return markdown(SHORT_HEAD, map(short_cells, single)) + f"\n\n{mean_line(rows)}"


def overhead(results: dict[str, Any]) -> str:
    calls = results.get("overhead_us", {})
    return markdown(OVERHEAD_HEAD, ((name, f"{us:.1f}") for name, us in calls.items()))


def torch_table(results: dict[str, Any]) -> str:
    rows = [row(model) for model in results["models"]]
    lines = [torch_line(rows), *failures(rows), about_line(results)]
    return "\n\n".join([markdown(TORCH_HEAD, map(torch_cells, rows)), *lines])


# --- the docs -------------------------------------------------------------------------------------

Table = Callable[[dict[str, Any]], str]
BLOCKS: dict[str, tuple[str, Table]] = {  # suffix of the files, what is made of one
    "full": ("", full),
    "loading": ("", loading),
    "short": ("", short),
    "overhead": ("", overhead),
    "torch": (files.FROM_TORCH, torch_table),
}
PAGES = {
    "docs/performance.md": ("full", "loading", "overhead", "torch"),
    "README.md": ("short",),
}


def block(name: str, folder: Path = files.FOLDER) -> str:
    """The tables of one block: one for each machine, with its name if there are several."""
    suffix, table = BLOCKS[name]
    found = files.published(suffix, folder)
    titles = [f"**{files.file_name(results['about'])}**\n\n" for results in found]
    made = [
        (title if len(found) > 1 else "") + table(results)
        for title, results in zip(titles, found)
    ]  # fmt: skip
    return "\n\n".join(made) or NOTHING


def fill(text: str, name: str, table: str) -> str:
    """The page with the table between its `bench` comments replaced."""
    begin, end = f"<!-- bench: {name} -->", "<!-- bench: end -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"no {begin} … {end} on the page")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def filled(page: str, folder: Path = files.FOLDER) -> str:
    """The page with the blocks made of which there are published results; others stay."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in PAGES[page]:
        if files.published(BLOCKS[name][0], folder):
            text = fill(text, name, block(name, folder))
    return text


def fill_pages() -> None:
    for page in PAGES:
        text = filled(page)
        (ROOT / page).write_text(text, encoding="utf-8")
        print(f"{page} filled")
