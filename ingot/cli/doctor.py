"""`ingot doctor`: check this machine.

In: nothing. Out: the findings of machine.py; exit code 1 if models cannot run here. With --measure
the machine is measured first (measure.py), with --forget the stored measurement is removed.
"""

from __future__ import annotations

import sys
from itertools import groupby

import click

from ingot.cli.options import FAILED, command
from ingot.cli.output import print_json
from ingot.runtime.cpu import measured
from ingot.support import lazy
from ingot.support.errors import IngotError
from ingot.support.text import columns


@command("doctor", has_model=False)
@click.option("--measure", is_flag=True, help="Measure clock and bandwidths for the cost model.")
@click.option("--forget", is_flag=True, help="Remove the stored measurement of this machine.")
def doctor_command(measure: bool, forget: bool, as_json: bool) -> None:
    """Check this machine: software, CPU, cores, memory, folders, packages; run a smoke test."""
    if measure and forget:
        raise IngotError("bad-option", "--measure and --forget exclude each other", hint="give one")
    if measure:
        measured.store(lazy.load("cli.measure").measure())
    if forget:
        measured.forget()
    findings = lazy.load("cli.machine").examine()
    passed = all(found.state != "bad" for found in findings)
    if as_json:
        print_json({"passed": passed, "findings": [vars(found) for found in findings]})
    else:
        for section, group in groupby(findings, key=lambda found: found.section):
            click.echo(section)
            rows = [("  " + LABELS[f.state], f.name, f.value, f.why) for f in group]
            for line in columns(rows):
                click.echo(line)
        verdict = "Models compile and run here." if passed else "Models cannot run here; see !!."
        click.echo(f"\n{verdict}")
    if not passed:
        sys.exit(FAILED)


LABELS = {"ok": "ok", "none": "--", "note": " .", "bad": "!!"}
