"""examples/serving: several processes serve a plan, to clients at once, and end on SIGTERM."""

from __future__ import annotations

import http.client
import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ingot

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def exe(tmp_path_factory) -> ingot.Executable:
    exe = ingot.compile(DIGITS / "digits.onnx")
    exe.save(tmp_path_factory.getbasetemp() / "digits.plan")
    return exe


@pytest.fixture(scope="module")
def server(exe, tmp_path_factory) -> Iterator[tuple[int, list[int]]]:
    """(port, processes) of a running service; it must end cleanly."""
    plan, port = tmp_path_factory.getbasetemp() / "digits.plan", free_port()
    command = [sys.executable, ROOT / "examples/serving/server.py", plan, "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    yield port, [int(number) for line in lines for number in re.findall(r"\d+", line)]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def post(port: int, body: bytes) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", "/run", body)
    response = client.getresponse()
    return response.status, response.read()


def as_body(array: np.ndarray) -> bytes:
    body = io.BytesIO()
    np.save(body, array)
    return body.getvalue()


def test_clients_at_once_get_their_own_outputs(server, exe):
    port, processes = server
    assert len(set(processes)) == 2
    images = np.load(DIGITS / "test.npz")["images"]
    parts = [images[start : start + 1 + start % 5] for start in range(24)]
    with ThreadPoolExecutor(6) as clients:
        replies = list(clients.map(lambda part: post(port, as_body(part)), parts))
    for part, (status, body) in zip(parts, replies):
        assert status == 200
        assert np.load(io.BytesIO(body)).tobytes() == exe(part)[0].tobytes()


def test_the_packed_weights_are_one_mapping_of_the_file(server):
    _, processes = server
    for process in processes:
        maps = Path(f"/proc/{process}/maps").read_text()
        (line,) = (line for line in maps.splitlines() if line.endswith("digits.plan"))
        assert line.split()[1].startswith("r--"), "read-only: no process has a copy of its own"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (as_body(np.zeros((1, 1, 8, 9), np.float32)), b"bad-input"),
        (as_body(np.zeros((1, 1, 8, 8))), b"bad-input"),
        (b"no array", b""),
        (as_body(np.array([None])), b"allow_pickle"),
    ],
)
def test_bad_requests_are_refused_and_the_next_is_served(server, body, what):
    port, _ = server
    status, said = post(port, body)
    assert status == 400 and what in said
    assert post(port, as_body(np.zeros((2, 1, 8, 8), np.float32)))[0] == 200
