"""`make conformance`: every case of ONNX's suite, through Ingot and through ONNX Runtime.

    python -m tests.conformance.run                   all cases; compares with results.json
    python -m tests.conformance.run --match conv      cases whose name contains a word
    python -m tests.conformance.run --gaps --update   cases that did not pass; writes the records

In: nothing. Out: a table of operators (cases passed, with a host step, gaps, and what ONNX Runtime
passes), and the exit code 1 where a case differs from results.json, a gap has no reason in
gaps.json, or a reason's case passes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.conformance import records
from tests.conformance.workers import run_all


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--gaps", action="store_true", help="only cases that did not pass")
    parser.add_argument("--update", action="store_true", help="write the records")
    parser.add_argument("--show", action="store_true", help="print each case")
    parser.add_argument("--alone", action="store_true", help="ONNX Runtime's results as recorded")
    args = parser.parse_args()
    from tests.conformance.cases import names, operators

    known = records.read(records.RESULTS)
    chosen = [name for name in names() if args.match in name]
    if args.gaps:
        chosen = [name for name in chosen if records.kind(known.get(name)) == records.GAP]
    if not chosen:
        print(f"no case is called like {args.match!r}")
        return 2
    start = time.perf_counter()
    found = run_all(chosen, args.show)
    seconds = time.perf_counter() - start
    peer = {} if args.alone else run_all(chosen, runtime="onnxruntime")
    tested, recorded = operators(), records.read(records.PEER)
    print(records.table(records.by_operator(found, {**recorded, **peer}, tested)))
    passed = sum(records.kind(result) != records.GAP for result in found.values())
    print(f"\n{passed} of {len(found)} = {passed / len(found):.1%} passed in {seconds:.0f} s")
    if peer:
        theirs = sum(result == records.PASSED for result in peer.values())
        print(f"ONNX Runtime: {theirs} = {theirs / len(peer):.1%}")
    reasons = Counter(r for r in found.values() if records.kind(r) == records.GAP)
    for reason, count in reasons.most_common(40):
        print(f"{count:5} {reason}")
    if args.update:
        records.merge(records.RESULTS, found)
        records.merge(records.PEER, {n: records.verdict(r) for n, r in peer.items()})
        records.merge(records.OPERATORS, tested)
    return report(found, known if not args.update else found)


def report(found: records.Texts, known: records.Texts) -> int:
    """What is not as it should be, of the cases that were run; the exit code."""
    gaps = records.read(records.GAPS)
    wrong = [
        f"differs from results.json: {name}: {found[name]}"
        for name in records.differing(found, known)
    ]
    here = {p: why for p, why in gaps.items() if any(records.reason_of(n, {p: why}) for n in found)}
    wrong += records.complaints(found, here)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
