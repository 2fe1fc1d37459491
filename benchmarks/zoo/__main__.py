"""Write models of the zoo and list them:  python -m benchmarks.zoo [--folder F] [NAME…]"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.zoo import TABLE, path_of
from benchmarks.zoo.compare import weights_bytes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to write; none: list all")
    parser.add_argument("--folder", type=Path, help="where files go (default: the user's cache)")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(TABLE))
    if unknown:
        parser.error(f"no model is called {unknown[0]}; the models are {', '.join(TABLE)}")
    for name in options.names or TABLE:
        entry = TABLE[name]
        shown = " ".join(f"{k}={v}" for k, v in entry.sizes[0].items()) or "static shapes"
        if not options.names:
            print(f"{name:24} {shown:34} {entry.source}")
            continue
        path = path_of(entry, options.folder)
        print(f"{name:24} {shown:34} {weights_bytes(path) / 1e6:8.1f} MB  {path}")


if __name__ == "__main__":
    main()
