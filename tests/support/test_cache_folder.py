"""The folder of cache entries: whole files or none, bounded, private, and never an error."""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from ingot.support import cache_folder, options
from ingot.support.cache_folder import CacheFolder, CacheWarning, open_folder

ROOT = Path(__file__).parents[2]
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path):
    cache_folder._warned.clear()
    with options.override(cache_dir=str(tmp_path / "cache")):
        opened = open_folder("kernels")
        assert opened is not None
        yield opened


def put(folder: CacheFolder, key: str, data: bytes = b"data") -> str | None:
    return folder.store(key, len(data), lambda file: file.write(data))


def names(folder: CacheFolder) -> set[str]:
    return set(os.listdir(os.path.join(folder.root, folder.kind)))


def test_an_entry_comes_back_and_is_private(folder):
    assert folder.find("a") is None
    path = put(folder, "a", b"first")
    assert path == folder.find("a") and Path(path).read_bytes() == b"first"
    put(folder, "a", b"second")
    assert Path(path).read_bytes() == b"second"
    assert os.stat(path).st_mode & 0o777 == 0o600
    for private in (folder.root, os.path.dirname(path)):
        assert os.stat(private).st_mode & 0o777 == 0o700


def test_a_damaged_entry_is_dropped(folder):
    """Any byte flipped, the file cut anywhere, or grown."""
    folder.put("a", b"some data")
    path = Path(folder.path("a"))
    entry = path.read_bytes()
    assert folder.get("a") == b"some data"
    for place in range(len(entry)):
        flipped = entry[:place] + bytes([entry[place] ^ 0x40]) + entry[place + 1 :]
        for data in (flipped, entry[:place], entry + entry[: place + 1]):
            path.write_bytes(data)
            assert folder.get("a") is None and not path.exists()


@pytest.mark.parametrize("word", ["off", "0", "no"])
def test_the_knob_switches_it_off(word):
    with options.override(cache_dir=word):
        assert open_folder("kernels") is None


def test_the_default_is_the_users_cache_folder(monkeypatch, tmp_path):
    with options.override(cache_dir=""):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert options.cache_folder() == str(tmp_path / "ingot")
        monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
        assert options.cache_folder() == os.path.expanduser("~/.cache/ingot")


def test_what_was_not_used_for_longest_goes_first(folder):
    with options.override(cache_dir=folder.root, cache_limit_bytes=1000):
        for age, key in enumerate("cba"):
            path = put(folder, key, bytes(300))
            os.utime(path, (time.time() - 100 - age,) * 2)
        folder.find("a")  # the oldest, but used now
        put(folder, "new", bytes(350))
        cache_folder.trim(folder.root, 1000)
        assert names(folder) == {"a", "new", "c"}
        assert put(folder, "huge", bytes(1001)) is None
        assert names(folder) == {"a", "new", "c"}


def test_writers_keep_the_bound_by_themselves(folder):
    with options.override(cache_dir=folder.root, cache_limit_bytes=10_000):
        for number in range(100):
            put(folder, f"{number}", bytes(500))
            assert sum(e.size_bytes for e in cache_folder.entries(folder.root)) <= 11_000


def test_a_folder_that_others_can_write_to_is_not_used(folder):
    put(folder, "a")
    os.chmod(folder.root, 0o777)
    with pytest.warns(CacheWarning, match=re.escape(str(folder.root))):
        assert open_folder("kernels") is None


def test_no_disk_space_is_one_warning(folder):
    """A limit on the size of files makes write() fail as a full disk does."""
    put(folder, "before")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
    try:
        with pytest.warns(CacheWarning, match=os.strerror(errno.EFBIG)):
            assert put(folder, "big", bytes(20_000)) is None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert put(folder, "big", bytes(20_000)) is None  # said once
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert names(folder) == {"before"}


READ_ONLY = """
import os, sys, warnings
from ingot.support import options
from ingot.support.cache_folder import open_folder
if os.geteuid() == 0:
    os.seteuid(int(sys.argv[2]))  # nothing is read-only for root
with options.override(cache_dir=sys.argv[1]), warnings.catch_warnings(record=True) as said:
    folder = open_folder("kernels")
    assert open(folder.find("old"), "rb").read() == b"data"
    for _ in range(2):
        assert folder.store("new", 1, lambda file: file.write(b"x")) is None
assert len(said) == 1 and "Permission denied" in str(said[0].message), said
"""


def test_a_read_only_folder_is_read_and_warned_about():
    with tempfile.TemporaryDirectory() as outside:  # pytest's folders are closed to other users
        os.chmod(outside, 0o711)
        folder = CacheFolder(os.path.join(outside, "cache"), "kernels")
        path = put(folder, "old")
        for place, mode in ((path, 0o400), (os.path.dirname(path), 0o500), (folder.root, 0o500)):
            if os.geteuid() == 0:
                os.chown(place, NOBODY, NOBODY)
            os.chmod(place, mode)
        command = [sys.executable, "-c", READ_ONLY, folder.root, str(NOBODY)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        for place in (folder.root, os.path.dirname(path)):
            os.chmod(place, 0o700)
    assert done.returncode == 0, done.stderr


KILLED = """
import sys
from ingot.support import options
from ingot.support.cache_folder import open_folder
with options.override(cache_dir=sys.argv[1]):
    folder = open_folder("kernels")
    print("ready", flush=True)
    for number in range(10**9):
        data = bytes([number % 251]) * 300_000
        folder.store(f"{number % 7}", len(data), lambda f: [f.write(data[:7]), f.write(data[7:])])
"""


def test_a_writer_killed_at_any_moment_leaves_whole_entries(folder):
    rng = random.Random(0)
    for _ in range(12):
        command = [sys.executable, "-c", KILLED, folder.root]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(rng.random() * 0.05)
            process.send_signal(signal.SIGKILL)
        for entry in cache_folder.entries(folder.root):
            data = Path(entry.path).read_bytes()
            assert len(data) == 300_000 and len(set(data)) == 1
    cache_folder.sweep(folder.root, grace_s=0)
    assert not [name for name in names(folder) if name.startswith(cache_folder._TEMPORARY)]


def test_a_living_writers_file_is_not_swept(folder):
    def write(file):
        file.write(b"half")
        file.flush()
        assert cache_folder.sweep(folder.root, grace_s=0) == 0
        file.write(b" and half")

    path = folder.store("a", 13, write)
    assert Path(path).read_bytes() == b"half and half"
