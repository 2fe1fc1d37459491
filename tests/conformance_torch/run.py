"""`make conformance-torch`: PyTorch's own samples through torch.compile(backend="ingot").

    python -m tests.conformance_torch.run                    all cases; compares with results.json
    python -m tests.conformance_torch.run --match conv       entries whose name contains a word
    python -m tests.conformance_torch.run --gaps --update    rows with gaps; writes the records

In: nothing. Out: a table of entries and element types, the gaps by reason, and the exit code 1
where a case differs from results.json, a gap has no reason in gaps.json, or a reason's case passes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.conformance import records
from tests.conformance.workers import run_all
from tests.conformance_torch import cases, results

MODULE = "tests.conformance_torch.cases"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only entries whose name contains this")
    parser.add_argument("--gaps", action="store_true", help="only rows that have gaps")
    parser.add_argument("--update", action="store_true", help="write results.json")
    parser.add_argument("--show", action="store_true", help="print each case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runtime", default="ingot", choices=sorted(cases.BACKENDS))
    args = parser.parse_args()
    known = results.known()
    bad = {name.rpartition(" ")[0] for name, r in known.items() if records.kind(r) == records.GAP}
    chosen = [name for name in cases.names() if args.match in name.rsplit(" ", 2)[0]]
    if args.gaps:
        chosen = [name for name in chosen if name.rpartition(" ")[0] in bad]
    if not chosen:
        print(f"no entry is called like {args.match!r}")
        return 2
    start = time.perf_counter()
    found = run_all(chosen, args.show, args.runtime, args.workers, MODULE)
    found = {name: result for name, result in found.items() if result != cases.ABSENT}
    print(results.table(found))
    passed = sum(records.kind(result) != records.GAP for result in found.values())
    seconds = time.perf_counter() - start
    print(f"\n{passed} of {len(found)} = {passed / len(found):.1%} passed in {seconds:.0f} s")
    errors = Counter(r[:100] for r in found.values() if records.kind(r) == records.GAP)
    for error, count in errors.most_common(40):
        print(f"{count:5} {error}")
    if args.update:
        results.write(found)
    return report(found, {} if args.update else known)


def report(found: records.Texts, known: records.Texts) -> int:
    """What is not as it should be, of the cases that were run; the exit code."""
    gaps = records.read(results.GAPS)
    here = {p: why for p, why in gaps.items() if any(records.reason_of(n, {p: why}) for n in found)}
    wrong = records.complaints(found, here)
    if known:
        wrong += [f"differs from results.json: {n}" for n in records.differing(found, known)]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
