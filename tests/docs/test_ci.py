"""The public CI file: valid YAML, and what it runs is there."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.docs.fences import ROOT

CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()


def commands(job: str) -> list[str]:
    return [step["run"] for step in CI["jobs"][job]["steps"] if "run" in step]


def test_it_runs_the_checks_of_the_project():
    assert "make test PYTHON=python" in commands("test")
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_its_targets_exist():
    lines = [line for job in CI["jobs"] for line in commands(job)]
    targets = [re.match(r"make ([\w-]+)", line) for line in lines]
    assert len(lines) >= 3 and all(targets)
    for target in targets:
        assert target is not None and re.search(rf"^{target[1]}:", MAKEFILE, re.M), target


def test_its_pythons_are_supported_and_begin_with_the_oldest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = CI["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13"], "texts: 3.1 would be a number"
    assert project["requires-python"] == f">={versions[0]}"


def test_every_step_is_a_command_or_a_pinned_action():
    steps = [step for job in CI["jobs"].values() for step in job["steps"]]
    assert all("run" in step or re.search(r"@v\d+$", step["uses"]) for step in steps)
    caches = [step["with"]["cache"] for step in steps if "setup-python" in step.get("uses", "")]
    assert caches == ["pip"] * len(CI["jobs"])
