"""Files of results in benchmarks/results: what `make bench` measured, one file for each machine and
instruction set, and what the docs' tables are made from.

In: results of `ingot bench`. Out: JSON, a line for each model: times rounded to four digits, no
paths of this machine.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingot import backends

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"
ISAS = {"avx512f": "avx512", "avx2": "avx2", "avx": "avx", "neon": "neon"}  # widest first
FROM_TORCH = "-torch"  # ends the name of a file of `make bench-torch`
DROPPED = ("options", "model", "exact")  # paths, and what `about` has
MAX_REASON = 400  # characters of an error message


def run_json(module: str, *words: str) -> dict[str, Any]:
    """The JSON that a command prints, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    return {**json.loads(done.stdout or "{}"), "exit_code": done.returncode}


def about(command: str, rounds: int, threads: str) -> dict[str, Any]:
    """The machine, its instruction set, versions, and how it was measured."""
    found = {f["name"]: f["value"] for f in run_json("ingot.cli", "doctor", "--json")["findings"]}
    return {
        "processor": found["model"],
        "cores": int(found["allowed"]),
        "isa": isa(),
        "vectors": found["vectors"],
        "system": found["system"],
        "python": platform.python_version(),
        "llvm": found["LLVM"],
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": command,
        "rounds": rounds,
        "threads": threads,
    }


def isa() -> str:
    features = backends.find("cpu").target("cpu").features
    return next((name for feature, name in ISAS.items() if feature in features), "baseline")


def _commit() -> str:
    """What was measured; a + if files differ from the commit. Empty without git."""
    words = ["git", "describe", "--always", "--dirty=+"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def file_name(about: dict[str, Any]) -> str:
    words = f"{about['processor']} {about['cores']} cores {about['isa']}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def published(suffix: str = "", folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The results of every machine: those of ONNX models, or with FROM_TORCH those of modules."""
    files = [
        file for file in sorted(folder.glob("*.json"))
        if file.stem.endswith(FROM_TORCH) == (suffix == FROM_TORCH)
    ]  # fmt: skip
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def write(results: dict[str, Any], file: Path) -> None:
    """One line for each model, so that a diff shows which have changed."""
    rest = {key: value for key, value in results.items() if key != "models"}
    lines = ",\n".join(_line(model) for model in results["models"])
    text = f'{{"models": [\n{lines}\n],\n{_line(rest)[1:]}\n'
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def cleaned(value: Any) -> Any:
    """Without paths, with four digits."""
    match value:
        case dict():
            return {k: cleaned(v) for k, v in value.items() if k not in DROPPED}
        case list() | tuple():
            return [cleaned(item) for item in value]
        case float():
            return float(f"{value:.4g}")
        case str():
            return without_paths(value, (ROOT, Path.home()))
    return value


def without_paths(text: str, folders: Sequence[Path]) -> str:
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    short = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)
    return short if len(short) <= MAX_REASON else f"{short[:MAX_REASON]} …"
