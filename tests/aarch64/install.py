"""Install what runs AArch64 code on another machine, into one folder: `make aarch64` calls it.

    build/aarch64/qemu   qemu-aarch64-static, of Debian
    build/aarch64/root   Debian's arm64 C library and Python
    build/aarch64/site   arm64 wheels of the packages that the runtime imports

Nothing is installed into the system and no root is needed: apt works on lists and a cache in the
folder, and packages are unpacked, not configured.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "aarch64"
RELEASE, PYTHON = "bookworm", "3.11"  # Debian's release, and the Python it has
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = (f"python{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libstdc++6")
WHEELS = ("numpy", "ml_dtypes")
HOSTS = {"x86_64": "amd64", "aarch64": "arm64"}  # Debian's names of machines that qemu runs on


def emulator() -> Path:
    return FOLDER / "qemu" / "qemu-aarch64-static"


def command(*arguments: str) -> list[str]:
    """The command line that runs the arm64 Python with Ingot, from this tree, on its path."""
    root, path = FOLDER / "root", f"{FOLDER / 'site'}:{ROOT}"
    python = root / "usr" / "bin" / f"python{PYTHON}"
    return [str(emulator()), "-L", str(root), "-E", f"PYTHONPATH={path}", str(python), *arguments]


def main() -> None:
    if not shutil.which("apt-get") or not Path(KEYS).exists():
        sys.exit("make aarch64 needs Debian's apt-get and debian-archive-keyring")
    shutil.rmtree(FOLDER, ignore_errors=True)
    options = _apt()
    _run("apt-get", *options, "update", "-qq")
    _run("apt-get", *options, "install", "-qq", "-y", "--download-only", *PACKAGES)
    for package in (FOLDER / "apt" / "cache" / "archives").glob("*.deb"):
        _run("dpkg", "-x", str(package), str(FOLDER / "root"))
    qemu = f"qemu-user-static:{HOSTS[platform.machine()]}"
    _run("apt-get", *options, "download", "-qq", qemu)
    (package,) = FOLDER.glob("qemu-user-static*.deb")
    _run("dpkg", "-x", str(package), str(FOLDER / "all"))
    emulator().parent.mkdir(parents=True)
    shutil.move(FOLDER / "all" / "usr" / "bin" / emulator().name, emulator())
    package.unlink()
    for used_up in ("all", "apt"):
        shutil.rmtree(FOLDER / used_up)
    wanted = ["--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64"]
    wanted += ["--python-version", PYTHON, "--only-binary=:all:", "--no-deps", *WHEELS]
    _run(sys.executable, "-m", "pip", "install", "-q", "--target", str(FOLDER / "site"), *wanted)
    _run(*command("-c", "import ctypes, ingot, numpy, platform; print(platform.machine())"))


def _apt() -> list[str]:
    """Options that give apt-get lists, a cache and a status of its own, in the folder."""
    apt = FOLDER / "apt"
    for path in ("lists/partial", "cache/archives/partial"):
        (apt / path).mkdir(parents=True)
    (apt / "status").touch()
    host = HOSTS[platform.machine()]
    source = f"deb [signed-by={KEYS}] http://deb.debian.org/debian {RELEASE} main\n"
    (apt / "sources.list").write_text(source)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": f"arm64,{host}",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
    }
    return [f"-o{name}={value}" for name, value in settings.items()]


def _run(*words: str) -> None:
    print("+", *words[:2], "…", words[-1], flush=True)
    subprocess.run(words, check=True, cwd=FOLDER)


if __name__ == "__main__":
    main()
