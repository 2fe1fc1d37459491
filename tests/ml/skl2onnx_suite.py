"""skl2onnx's own tests, with ONNX Runtime and with Ingot in its place: `make conformance-ml`.

    python -m tests.ml.skl2onnx_suite --match "random_forest or svm"

The tests come from skl2onnx's source distribution (they are in no wheel), unpacked into build/.
They compare what scikit-learn predicts with what the converted model computes. A test counts if it
passes with ONNX Runtime; the ratio is of those that pass with Ingot. Those that do not are listed
with their errors.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

VERSION = "1.20.0"
ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "skl2onnx"
PLUGINS = {"onnxruntime": [], "ingot": ["-p", "tests.ml.session"]}
LIMIT_S = 7200  # for one run of the suite


def tests_folder() -> Path:
    """The unpacked tests, downloaded once."""
    folder = BUILD / f"skl2onnx-{VERSION}" / "tests"
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(BUILD),
        ]
        pip += ["--no-build-isolation", "--no-binary", "skl2onnx", f"skl2onnx=={VERSION}"]
        subprocess.run(pip, check=True)
        with tarfile.open(BUILD / f"skl2onnx-{VERSION}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    return folder


def run(peer: str, match: str, files: list[str]) -> dict[str, str]:
    """Test → "" if it passes, else its error. Skipped tests are left out."""
    folder, report = tests_folder(), BUILD / f"{peer}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=100000", "--tb=line"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", *PLUGINS[peer], f"--junitxml={report}"]
    command += ["--rootdir", str(folder), "-W", "ignore", "-k", match] if match else [
        "--rootdir", str(folder), "-W", "ignore",
    ]  # fmt: skip
    command += files or ["."]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with (BUILD / f"{peer}.log").open("w") as log:
        subprocess.run(command, cwd=folder, env=env, stdout=log, stderr=log, timeout=LIMIT_S)
    return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failed = [case.find(kind) for kind in ("failure", "error")]
        failed = [f for f in failed if f is not None]
        if case.find("skipped") is None:
            found[name] = (failed[0].get("message") or "failed") if failed else ""
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="test files of skl2onnx; all without")
    parser.add_argument("--match", default="", help="pytest's -k")
    parser.add_argument("--reuse", action="store_true", help="ONNX Runtime's results of last time")
    args = parser.parse_args()
    known = BUILD / "onnxruntime.xml"
    has_known = args.reuse and known.exists()
    peer = outcomes(known) if has_known else run("onnxruntime", args.match, args.files)
    ours = run("ingot", args.match, args.files)
    wanted = {name for name, error in peer.items() if not error and name in ours}
    passed = {name for name in wanted if not ours[name]}
    for name in sorted(wanted - passed):
        print(f"{name}: {' '.join(ours[name].split())[:240]}")
    share = 100 * len(passed) / max(1, len(wanted))
    print(
        f"passed with ONNX Runtime: {len(wanted)} of {len(peer)}; of those with Ingot: "
        f"{len(passed)}, {share:.1f} %"
    )


if __name__ == "__main__":
    main()
