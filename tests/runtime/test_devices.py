"""Devices: a package for one that the runtime does not know is saved, loaded and run; and what a
device that is missing or broken reports."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.backends.packaging import package as make_package
from ingot.runtime import devices, plan_file
from ingot.runtime.cpu import host
from ingot.runtime.cpu.module import read
from ingot.runtime.package import Module, Package
from tests.models.build import HARD
from tests.refusal import refused
from tests.runtime import paper_device
from tests.runtime.common import exe, feeds
from tests.runtime.paper_device import DEVICE, Sheet
from tests.runtime.test_loader import mapped
from tests.small import answers, small_model

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make a distribution with one entry point, as pip would leave it."""

    def make(name: str, value: str) -> None:
        info = tmp_path / "stationery-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stationery\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{devices.GROUP}]\n{name} = {value}\n")

    monkeypatch.syspath_prepend(tmp_path)
    devices.find.cache_clear()
    yield make
    devices.find.cache_clear()


@pytest.fixture
def paper(install: Callable[..., None]) -> None:
    install("paper", "tests.runtime.paper_device:DEVICE")


def on_paper(model: object, **options: object) -> Package:
    session = api.make_session("x86-64-v3", **options)  # type: ignore[arg-type]
    program = pipeline.run_stages(model, session, stop_after="barriers")
    return make_package(program, session.store, (paper_device.module_of(program),), ())


@pytest.mark.usefixtures("paper")
def test_a_package_for_another_device_is_saved_loaded_and_run(tmp_path: Path):
    plan_file.save(str(tmp_path / "small.plan"), on_paper(small_model()))
    loaded = ingot.load(tmp_path / "small.plan")
    assert loaded.package.device == "paper" and loaded.threads == 1
    for rows in (5, 2):
        for got, want in zip(loaded(X[:rows]), answers(X[:rows])):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    out = [np.zeros((5, 3), np.float32), np.zeros(5, np.float32)]
    assert loaded(x=X, out=out)[0] is out[0]
    np.testing.assert_allclose(out[1], answers(X)[1], rtol=1e-5)
    with refused("bad-input", 3, 4, where="'x'", hint=False):
        loaded(X[:, :3])
    with refused("bad-option", hint="profile=True"):
        loaded.profile({"x": X})


@pytest.mark.usefixtures("paper")
def test_outputs_whose_size_the_run_decides():
    model, given = HARD["dynamic_sequence"]()
    want = ingot.compile(model).run(None, given)
    got = ingot.Executable(on_paper(model)).run(None, given)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("paper")
def test_ports_on_a_device_take_and_give_its_arrays():
    package = on_paper(small_model())
    moved = replace(
        package,
        inputs=tuple(replace(port, device="paper") for port in package.inputs),
        outputs=(replace(package.outputs[0], device="paper"), package.outputs[1]),
    )
    compiled, copied = ingot.Executable(moved), DEVICE.copied
    y, z = compiled(Sheet(X))
    assert isinstance(y, Sheet) and isinstance(z, np.ndarray)
    assert DEVICE.copied == copied + 2, "the outputs; the input was there"
    back = np.empty(y.shape, y.dtype)
    DEVICE.copy(back, y)
    np.testing.assert_allclose(back, answers(X)[0], rtol=1e-5)
    np.testing.assert_allclose(compiled(X)[1], answers(X)[1], rtol=1e-5)  # a host array is copied
    with refused("bad-input", "float64", where="'x'"):
        compiled(Sheet(X.astype(np.float64)))
    with refused("bad-input", "'paper'", where="'y'"):
        compiled(X, out={"y": np.empty((5, 3), np.float32)})


@pytest.mark.usefixtures("paper")
def test_a_closed_or_copied_executable():
    compiled = ingot.Executable(on_paper(small_model()))
    own = compiled.context()
    compiled.close()
    with refused("bad-option"):
        compiled(X)
    np.testing.assert_allclose(own(X)[1], answers(X)[1], rtol=1e-5)


@pytest.mark.usefixtures("paper")
def test_a_device_says_why_it_cannot_run_a_package(tmp_path: Path):
    strange = replace(on_paper(small_model()), modules=(Module("paper", "ink", ()),))
    plan_file.save(str(tmp_path / "ink.plan"), strange)
    with refused("bad-target", "ink", where="ink.plan"):
        ingot.load(tmp_path / "ink.plan")


def test_an_unknown_device_names_those_there_are(tmp_path: Path):
    stone = replace(exe("relu").package, modules=(Module("stone", "runes", ()),))
    plan_file.save(str(tmp_path / "stone.plan"), stone)
    with refused("bad-target", "cpu", where="'stone'", hint=devices.GROUP):
        ingot.load(tmp_path / "stone.plan")


@pytest.mark.parametrize(
    ("text", "cause"),
    [("raise OSError('no such driver')", "no such driver"), ("import nothing_like_it", "nothing")],
)
def test_a_device_that_cannot_be_imported(
    install: Callable[..., None], tmp_path: Path, text: str, cause: str
):
    (tmp_path / "broken_device.py").write_text(text)
    install("broken", "broken_device:DEVICE")
    package = replace(exe("relu").package, modules=(Module("broken", "", ()),))
    with refused("bad-target", "stationery", where="'broken'") as caught:
        ingot.Executable(package)
    assert cause in caught.value.why
    assert exe("relu")(*feeds("relu").values()), "the CPU is as good as before"


def test_a_closed_executable_frees_its_code():
    compiled, given = exe("residual_cnn"), list(feeds("residual_cnn").values())
    for _ in range(3):
        want = compiled(*given)
    own, objects = compiled.context(), compiled._loaded._code.objects
    address = objects[0]._base
    del objects
    compiled.close()
    with refused("bad-option"):
        compiled(*given)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(own(*given), want))
    assert mapped(address) == "r-x", "the other context has the code"
    own.close()
    gc.collect()
    assert "x" not in mapped(address), "it was freed; the system may give the pages to others"


# --- the CPU ------------------------------------------------------------------------------------


def test_the_cpus_module_comes_back():
    module = read(exe("relu").package)
    assert module.architecture == host.architecture() and len(module.kernels) == 1
    assert (
        replace(exe("relu").package, modules=(module.pack(),)).modules
        == exe("relu").package.modules
    )


def test_code_of_another_architecture_is_refused(tmp_path: Path):
    package = pipeline.run_stages(small_model(), api.make_session("aarch64"))
    plan_file.save(str(tmp_path / "other.plan"), package)
    if host.architecture() != "aarch64":
        with refused("bad-target", "aarch64", host.architecture(), where="other.plan"):
            ingot.load(tmp_path / "other.plan")


NEOVERSE = (
    "aarch64; Features : fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid "
    "asimdrdm jscvt fcma lrcpc dcpop sha3 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs "
    "dcpodp svei8mm svebf16 i8mm bf16 dgh rng; CPU implementer : 0x41; CPU part : 0xd40"
)
RYZEN = "x86_64; vendor_id : AuthenticAMD; flags : fpu sse2 pni avx avx2 fma bmi1 abm sse4_1; x"


@pytest.mark.parametrize(
    ("cpuinfo", "architecture", "features", "missing"),
    [
        (NEOVERSE, "aarch64", "fp-armv8 neon fullfp16 dotprod lse rcpc i8mm sve bf16 crc", []),
        (NEOVERSE, "aarch64", "neon sve2 sme", ["sve2", "sme"]),
        (RYZEN, "x86_64", "sse4.1 sse3 lzcnt bmi x87 avx512f", ["avx512f"]),
        ("riscv64", "riscv64", "m a f d", []),
    ],
)
def test_features_are_looked_up_by_linuxs_names(
    cpuinfo: str, architecture: str, features: str, missing: list[str]
):
    assert host.missing_from(cpuinfo, architecture, features.split()) == missing
