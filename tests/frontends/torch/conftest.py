"""Counts how weights that changed reach compiled code."""

import pytest

from ingot.support import lazy


@pytest.fixture
def remakes(monkeypatch):
    """The refreshes: with the old code, or compiled."""
    seen = []
    real = lazy.load("refresh")

    def counting(package, model, session):
        made = real(package, model, session)
        seen.append("same code" if made.modules is package.modules else "compiled")
        return made

    monkeypatch.setattr("ingot.refresh.refreshed", counting)
    return seen
