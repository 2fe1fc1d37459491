"""`ingot doctor`: what this machine can do, and why not.

In: nothing. Out: a list of findings (machine.py looks); exit code 1 if models cannot run here.
"""

from __future__ import annotations

import sys
from itertools import groupby

import click

from ingot.cli.options import FAILED, command
from ingot.cli.output import print_json
from ingot.support import lazy
from ingot.support.text import columns


@command("doctor", has_model=False)
def doctor_command(as_json: bool) -> None:
    """Say what this machine can do, and why not."""
    findings = lazy.load("cli.machine").examine()
    fit = all(found.state != "bad" for found in findings)
    if as_json:
        print_json({"fit": fit, "findings": [vars(found) for found in findings]})
    else:
        for part, group in groupby(findings, key=lambda found: found.part):
            click.echo(part)
            rows = [("  " + MARKS[f.state], f.name, f.value, f.why) for f in group]
            for line in columns(rows):
                click.echo(line)
        click.echo("\nModels compile and run here." if fit else "\nModels cannot run here; see !!.")
    if not fit:
        sys.exit(FAILED)


MARKS = {"ok": "ok", "none": "--", "note": " .", "bad": "!!"}
