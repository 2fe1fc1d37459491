"""Weights of 4 or 8 bits:  python benchmarks/weight_only.py [products | decoder | --short]

Two settings, each with its error against float64: activations in f32 (ONNX Runtime's
accuracy_level 0, OpenVINO with groups of 0), and quantised to int8 (level 4, OpenVINO's default).
Out: a table with times, GB/s of weights and scales, and their share of the read bandwidth that the
same rounds measure. Files are in build/weight_only; --short makes a small decoder and few rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is run by its path

from benchmarks.weight_only_models import Decoder, Files, Product, decoder_files  # noqa: E402
from ingot.cli.peers.process import Peer, PeerError  # noqa: E402
from ingot.cli.peers.rounds import BenchOptions, Entry, Runner, time_rounds  # noqa: E402
from ingot.cli.peers.task import READ_BYTES, Task, read_outputs, save_feeds  # noqa: E402
from ingot.cli.compare import distance  # noqa: E402
from ingot.support.text import columns  # noqa: E402

FOLDER = Path("build/weight_only")
CHILD = "benchmarks.weight_only_runtimes"
PROBE = "bandwidth"
PRODUCTS = (
    Product(1, 2048, 2048, 32), Product(1, 2048, 8192, 32), Product(1, 8192, 2048, 32),
    Product(1, 2048, 32_000, 32), Product(1, 2048, 32_000, 128), Product(1, 2048, 32_000, 64, 8),
    Product(4, 2048, 8192, 32), Product(32, 2048, 8192, 32),
)  # fmt: skip
SHORT = Decoder(layers=2, vocabulary=4000)
CAPS = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX512_CORE"}
HEAD = ("model", "threads", "activations", "runtime", "ms", "best peer / it", "GB/s", "of bandwidth",
        "error")  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A runtime in one setting."""

    runtime: str
    activations: str  # f32 or i8
    level: int = 0  # of the file

    @property
    def label(self) -> str:
        return f"{self.runtime.partition('@')[0]} {self.activations}"


def columns_for(target: str) -> list[Column]:
    """ONNX Runtime has no cap: it is left out where Ingot has another target than this machine."""
    ours = "ingot" if target == "cpu" else f"ingot@{target}"
    cap = "" if target == "cpu" else f"@{CAPS[target]}"
    found = []
    for activations, level in (("f32", 0), ("i8", 4)):
        found.append(Column(ours, activations, level))
        found.append(Column(f"openvino@{activations}{cap}", activations))
        if target == "cpu":
            found.append(Column("onnxruntime", activations, level))
    return found


def benchmark(
    files: Files, wanted: Sequence[Column], threads: int, options: BenchOptions
) -> tuple[list[Entry], float | None]:
    """An entry for each column, and the read bandwidth in bytes per ns."""
    with tempfile.TemporaryDirectory(prefix="ingot-weights-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        feeds = folder / "feeds.npz"
        save_feeds(feeds, files.feeds.values())
        shapes = tuple(a.shape for a in files.feeds.values())
        task = Task("", str(feeds), tuple(files.feeds), ("f32",) * len(shapes), shapes, {},
                    is_dynamic=False, threads=threads)  # fmt: skip
        runners = []
        for number, column in enumerate(wanted):
            own = replace(task, model=str(files.levels[column.level]))
            saved = folder / f"{number}.npz"
            runners.append(_load(column.runtime, own, folder, options, stack, files, saved))
        probe = _load(PROBE, task, folder, options, stack, files, None)
        time_rounds([*runners, probe], options, lambda what: None)
        entries = [replace(r.entry, rounds_ms=tuple(r.rounds_ms)) for r in runners]
        rate = READ_BYTES / median(probe.rounds_ms) / 1e6 if probe.rounds_ms else None
        return entries, rate


def _load(
    name: str, task: Task, folder: Path, options: BenchOptions, stack: ExitStack, files: Files,
    saved: Path | None,
) -> Runner:  # fmt: skip
    """The runtime with the model loaded, and its error."""
    entry = Entry(name, task.threads)
    peer = stack.enter_context(Peer(name, folder / "cache", task.threads, options.limit_s, CHILD))
    try:
        loaded = peer.load(task)
        entry = replace(entry, version=loaded["version"], load_s=loaded["load_s"])
        if saved is not None:
            peer.save_outputs(saved)
            found = read_outputs(saved)[: len(files.exact)]
            entry = replace(entry, error=max(map(distance, found, files.exact)))
    except PeerError as why:
        return Runner(peer, replace(entry, failure=str(why)))
    return Runner(peer, entry)


def rows(
    title: str, files: Files, wanted: Sequence[Column], entries: Sequence[Entry], rate: float | None
) -> list[tuple[str, ...]]:
    found = []
    for column, entry in zip(wanted, entries):
        if entry.time_ms is None:
            print(f"{title}: {column.label}: failed: {entry.failure}", file=sys.stderr)
            continue
        others = [
            e.time_ms for c, e in zip(wanted, entries)
            if c.activations == column.activations and not c.runtime.startswith("ingot")
        ]  # fmt: skip
        best = min((t for t in others if t is not None), default=None)
        speed = files.weight_bytes / entry.time_ms / 1e6
        found.append((
            title, str(entry.threads), column.activations, f"{column.runtime} {entry.version}",
            f"{entry.time_ms:.3f}", f"{best / entry.time_ms:.2f}" if best else "-",
            f"{speed:.1f}", f"{100 * speed / rate:.0f} %" if rate else "-", f"{entry.error:.1e}",
        ))  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("products", "decoder"))
    parser.add_argument("--short", action="store_true", help="a small decoder, few rounds")
    parser.add_argument("--threads", default="1,2", help="thread counts")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--block", type=int, default=32, help="codes of a block in the decoder")
    parser.add_argument("--target", default="cpu", help="cpu, x86-64-v3 or x86-64-v4")
    given = parser.parse_args()
    rounds, round_s = (2, 0.1) if given.short else (given.rounds, 0.5)
    options, wanted = BenchOptions(rounds, round_s), columns_for(given.target)
    made: list[tuple[str, Files]] = []
    if given.what != "decoder":
        products = PRODUCTS[:1] if given.short else PRODUCTS
        made += [(str(p), p.files(FOLDER)) for p in products]
    if given.what != "products":
        decoder = replace(SHORT if given.short else Decoder(), block=given.block)
        made.append((f"decoder, {decoder.layers} layers", decoder_files(FOLDER, decoder)))
    table = []
    for title, files in made:
        for threads in map(int, given.threads.split(",")):
            entries, rate = benchmark(files, wanted, threads, options)
            found = rows(title, files, wanted, entries, rate)
            table += found
            print(f"\n{title}, {threads} threads: {files.weight_bytes / 1e6:.0f} MB of weights, "
                  f"read bandwidth {rate or 0:.1f} GB/s")  # fmt: skip
            print("\n".join(columns([HEAD[2:], *(row[2:] for row in found)])), flush=True)


if __name__ == "__main__":
    main()
