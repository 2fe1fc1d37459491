"""`make architectures`: models of `transformers` with random weights, compiled, versus eager.

    python -m tests.torch.architectures.run                  all, small
    python -m tests.torch.architectures.run bert gpt2        some
    python -m tests.torch.architectures.run --size large     at full size
    python -m tests.torch.architectures.run --update         writes results.json

In: nothing. Out: a table of architectures, and the exit code 1 where a case differs from
results.json, a gap has no reason in gaps.json, or a reason's case passes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.conformance import records
from tests.conformance.workers import run_all
from tests.torch.architectures import cases, results

MODULE = "tests.torch.architectures.cases"
LIMIT_S = 1200  # of one case; large ones take minutes on a busy machine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these architectures")
    parser.add_argument("--size", default="small", choices=cases.SIZES)
    parser.add_argument("--way", action="append", choices=sorted(cases.WAYS), help="only this way")
    parser.add_argument("--update", action="store_true", help="write results.json")
    parser.add_argument("--show", action="store_true", help="print each case")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    unknown = sorted(set(args.names) - cases.TABLE.keys())
    if unknown:
        print(f"no architecture is called {unknown[0]!r}")
        return 2
    ways = args.way or list(cases.WAYS)
    chosen = [f"{n} {args.size} {w}" for n in args.names or cases.TABLE for w in ways]
    start = time.perf_counter()
    found = run_all(chosen, args.show, "ingot", args.workers, MODULE, LIMIT_S)
    print(results.table(found))
    counts = Counter(map(results.kind, found.values()))
    seconds = time.perf_counter() - start
    total = len(found) - counts[results.ABSENT]
    print(f"\n{counts[records.PASSED]} of {total} cases passed in {seconds:.0f} s")
    known = {} if args.update else records.read(results.RESULTS)
    if args.update:
        records.merge(results.RESULTS, found)
    wrong = results.complaints(found, known)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
