"""Sizes that calls have often get a build of their own, and every way to call still works."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import ingot
from ingot.runtime import plan_file
from ingot.support import options
from ingot.support.errors import IngotError
from tests.models.parts import info, model, node, rng, weight
from tests.runtime.common import endless
from tests.runtime.specialising import BYTES, cached, call, dense, expected, rows, until

CALLS = 5  # before a build


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        yield tmp_path


def specialising(source=BYTES, **settings: int) -> ingot.Executable:
    return ingot.compile(source, threads=2, jobs=1, specialise={"calls": CALLS, **settings})


def build(exe: ingot.Executable, count: int) -> None:
    """Call it until it has a build for this number of rows."""
    call(exe, rows(count), CALLS)
    assert exe.wait_for_builds(300)


def ready(exe: ingot.Executable) -> set[str]:
    return {sizes for sizes, state in exe.specialised.items() if state == "ready"}


def loaded_of(exe: ingot.Executable, count: int):
    """The loaded module that calls with this number of rows use."""
    return exe._builds[((count, 96),)].exe._loaded  # type: ignore[attr-defined]


# --- the build ----------------------------------------------------------------------------------


def test_off_by_default():
    exe = ingot.compile(BYTES, jobs=1)
    call(exe, rows(6), 300)
    assert type(exe) is ingot.Executable and type(exe.context()) is ingot.Executable
    assert exe.specialised == {} and exe.wait_for_builds(0)
    assert type(ingot.compile(BYTES, jobs=1, specialise=False)) is ingot.Executable


def test_a_frequent_size_gets_a_build_from_a_child_process():
    exe = specialising()
    call(exe, rows(6), CALLS - 1)
    assert exe.specialised == {} and exe.wait_for_builds(0)
    call(exe, rows(6))
    assert set(exe.specialised) == {"n=6"}
    assert exe.wait_for_builds(300)
    assert exe.specialised == {"n=6": "ready"}
    assert "specialised for n=6: ready\n" in exe.report()
    (static,) = cached(6)
    assert list(static.times_s) == ["cache"], "the child made another entry"
    assert call(exe, rows(6)).tobytes() == static(rows(6))[0].tobytes()
    call(exe, rows(9), CALLS - 1)
    assert ready(exe) == {"n=6"}


def test_steady_calls_take_the_fast_path_of_the_build():
    cached(6, 7)
    exe = specialising()
    build(exe, 6)
    build(exe, 7)
    for _ in range(5):  # sizes that alternate keep a fast path each
        call(exe, rows(6))
        call(exe, rows(7))
    for count in (6, 7):
        (fast,) = loaded_of(exe, count)._fast_paths
        call(exe, rows(count), 3)
        assert loaded_of(exe, count)._fast_paths == [fast]


def test_another_executable_and_process_find_the_build_in_the_cache(monkeypatch):
    first = specialising()
    build(first, 6)
    first.close()
    monkeypatch.setattr(sys, "executable", "/nonexistent")  # no process can be started
    second = specialising()
    build(second, 6)
    assert second.specialised == {"n=6": "ready"}
    build(second, 7)
    state = second.specialised["n=7"]
    assert state.startswith("failed: FileNotFoundError") and "/nonexistent" in state
    call(second, rows(7), 3 * CALLS)  # as before, and not tried again
    assert second.specialised == {"n=6": "ready", "n=7": state}


def test_a_model_file_with_external_data(home: Path):
    proto = dense()
    onnx.save(proto, home / "m.onnx", save_as_external_data=True, size_threshold=0, location="w")
    exe = specialising(home / "m.onnx")
    build(exe, 6)
    assert exe.specialised == {"n=6": "ready"}
    (home / "w").write_bytes(bytes((home / "w").stat().st_size))
    build(exe, 7)  # from the old data still: the general code
    assert "external data" in exe.specialised["n=7"]
    call(exe, rows(7))
    call(exe, rows(6))


def test_a_model_file_that_changes_is_another_model(home: Path, monkeypatch):
    onnx.save(dense(), home / "m.onnx")
    monkeypatch.chdir(home)
    exe = specialising("m.onnx")
    monkeypatch.chdir("/")
    onnx.save(dense(name="other"), home / "m.onnx")
    build(exe, 6)
    assert exe.specialised["n=6"].startswith("failed: the build is not in the model cache")
    assert "model has changed" in exe.specialised["n=6"]


def test_ranges_and_names_that_are_no_identifiers():
    source = dense("batch size").SerializeToString()
    exe = ingot.compile(source, shapes={"batch size": (1, 8)}, jobs=1, specialise={"calls": 2})
    call(exe, rows(6), 2)
    assert exe.wait_for_builds(300) and exe.specialised == {"batch_size=6": "ready"}
    own = exe._builds[((6, 96),)].exe  # type: ignore[attr-defined]
    assert not own.package.symbols
    call(exe, rows(6), 2)
    with pytest.raises(IngotError, match="outside its range 1 to 8"):
        exe(rows(9))


def test_multiples():
    """A size that is halved and doubled again: the dynamic dimension is its half."""
    nodes = [
        node("MaxPool", "x", "h", kernel_shape=[2], strides=[2]),
        node("Resize", "h _ scales", "u"),
        node("Add", "u x", "y"),
    ]
    shape = [1, 2, "n"]
    constants = {"scales": np.array([1, 1, 2], np.float32)}
    proto = model("halved", nodes, [info("x", shape)], [info("y", shape)], constants)
    exe = ingot.compile(proto.SerializeToString(), jobs=1, specialise={"calls": 2})
    x = np.arange(16, dtype=np.float32).reshape(1, 2, 8)
    before = [exe(x)[0] for _ in range(2)]
    assert exe.wait_for_builds(300) and exe.specialised == {"n_by_2=4": "ready"}
    assert np.array_equal(exe(x)[0], before[0])
    assert np.array_equal(before[0], x + np.repeat(x[..., 1::2], 2, -1))


# --- bounds -------------------------------------------------------------------------------------


def test_the_least_recently_used_build_is_dropped_and_freed():
    cached(5, 6, 7)
    exe = specialising(max_builds=2)
    build(exe, 5)
    build(exe, 6)
    call(exe, rows(5))
    dropped = weakref.ref(loaded_of(exe, 6)._code)
    build(exe, 7)
    assert exe.specialised == {"n=5": "ready", "n=7": "ready"}
    gc.collect()
    assert dropped() is None
    call(exe, rows(6))  # by the general code
    build(exe, 6)
    assert ready(exe) == {"n=7", "n=6"}


def test_a_build_in_use_is_not_replaced():
    cached(5, 6)
    exe = specialising(max_builds=1)
    build(exe, 5)
    for _ in range(4 * CALLS):
        call(exe, rows(5))
        call(exe, rows(6))
    assert exe.wait_for_builds(300) and exe.specialised == {"n=5": "ready"}


def test_bytes_are_bounded():
    sizes = [plan_file.size_of(exe.package) for exe in cached(5, 6)]
    exe = specialising(max_bytes=sum(sizes) - 1)
    build(exe, 5)
    build(exe, 6)
    assert exe.specialised == {"n=6": "ready"}
    for _ in range(CALLS):
        call(exe, rows(5))
        call(exe, rows(6))
    assert ready(exe) == {"n=6"}
    small = specialising(max_bytes=sizes[0] - 1)
    build(small, 5)
    what = f"failed: it has {sizes[0]} bytes, max_bytes is {sizes[0] - 1}"
    assert small.specialised == {"n=5": what}
    call(small, rows(5))


def test_dropped_while_another_thread_is_in_a_call():
    """The call ends well: its code is freed after it."""
    proto, feeds = endless(2_000_000)
    source, small = proto.SerializeToString(), {"x": feeds["x"][:8], "trips": np.array(3)}
    for count in (16, 8):
        ingot.compile(source, shapes={"n": count}, jobs=1)
    exe = ingot.compile(source, threads=1, jobs=1, specialise={"calls": CALLS, "max_builds": 1})
    wanted = [ingot.compile(source, threads=1, jobs=1).run(None, given) for given in (feeds, small)]
    for _ in range(CALLS):
        exe.run(None, {**feeds, "trips": np.array(3)})
    assert exe.wait_for_builds(300) and ready(exe) == {"n=16"}
    (own,) = exe._builds.values()  # type: ignore[attr-defined]
    code, found = weakref.ref(own.exe._loaded._code), []
    del own
    began = exe._clock()  # type: ignore[attr-defined]
    thread = threading.Thread(target=lambda: found.extend(exe.run(None, feeds)))
    thread.start()
    until(lambda: any(b.used_at > began for b in exe._builds.values()))  # type: ignore
    for _ in range(CALLS):
        others = exe.run(None, small)
    assert exe.wait_for_builds(300) and ready(exe) == {"n=8"}
    assert thread.is_alive() and code() is not None, "the call was too short for this test"
    thread.join()
    gc.collect()
    assert code() is None
    np.testing.assert_allclose(found[0], wanted[0][0], atol=1e-5)
    np.testing.assert_allclose(others[0], wanted[1][0], atol=1e-5)


# a call that began before the last build of its size was there counts as a first one: then the
# request finds a build that was used since, and the size is counted again
ATTEMPTS = 3


def test_threads_that_call_while_builds_come_and_go():
    counts = (5, 6, 7)
    cached(*counts)
    exe = specialising(max_builds=1)
    wanted = {count: expected(rows(count)) for count in counts}
    errors: list[BaseException] = []
    together = threading.Barrier(3, timeout=300)

    def work() -> None:
        try:
            own = exe.context()
            for count in counts * 3:
                for _ in range(ATTEMPTS):
                    together.wait()  # the size before is not in use: its build may go
                    x = rows(count)
                    for e in (exe, own) * 50:
                        np.testing.assert_allclose(e(x)[0], wanted[count], atol=1e-5, rtol=0)
                    assert exe.wait_for_builds(300)
                    together.wait()  # nobody calls: all threads see the same
                    if ready(exe) == {f"n={count}"}:
                        break
                assert ready(exe) == {f"n={count}"}
        except BaseException as error:
            errors.append(error)
            together.abort()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_more_frequent_sizes_than_are_counted(monkeypatch):
    monkeypatch.setattr("ingot.runtime.builds.MAX_COUNTED_SHAPES", 2)
    cached(5)
    exe = specialising()
    for count in (5, 6, 7, 8) * CALLS:
        call(exe, rows(count))
    build(exe, 5)
    assert exe.specialised == {"n=5": "ready"}


# --- ways to call -------------------------------------------------------------------------------


def test_out_run_lists_and_thread_counts():
    cached(6)
    exe, x = specialising(), rows(6)
    build(exe, 6)
    own = loaded_of(exe, 6)
    y = np.empty((6, 40), np.float32)
    assert exe(x, out=y)[0] is y
    others = [
        exe.run(["y"], {"x": x})[0],
        exe(x=x)[0],
        exe(x.tolist())[0],
        exe(np.asfortranarray(x))[0],
    ]
    assert own.threads == 2
    exe.threads = 1
    assert own.threads == 1 and exe.threads == 1
    others.append(exe(x)[0])
    wanted = expected(x)
    for other in (y, *others):
        np.testing.assert_allclose(other, wanted, atol=1e-5, rtol=0)
        assert other.tobytes() == y.tobytes()
    for bad in (x.astype(np.float64), x[:, :5], [[1.0, 2.0], [3.0]]):
        with pytest.raises(IngotError, match="bad-input"):
            exe(bad)


def test_contexts_share_the_builds():
    cached(6, 7)
    exe = specialising()
    early = exe.context()
    build(exe, 6)
    late = exe.context()
    late.threads = 1
    for own in (early, late):
        assert own.specialised == {"n=6": "ready"}
        call(own, rows(6), 4)
    loaded = [loaded_of(e, 6) for e in (exe, early, late)]
    assert len({id(x) for x in loaded}) == 3 and len({id(x._code) for x in loaded}) == 1
    assert [x.threads for x in loaded] == [2, 2, 1]
    exe.close()
    with pytest.raises(IngotError, match="closed"):
        exe(rows(6))
    build(late, 7)
    assert ready(late) == {"n=6", "n=7"}
    call(early, rows(7), 2)


def test_state_is_updated_in_place():
    nodes = [node("Add", "past x", "present"), node("ReduceSum", "present", "y", keepdims=0)]
    ports = (
        [info("past", ["n", 4]), info("x", ["n", 4])],
        [info("present", ["n", 4]), info("y", [])],
    )
    source = model("state", nodes, *ports).SerializeToString()
    exe = ingot.compile(
        source, jobs=1, state={"past": "present"}, specialise={"calls": 3}, profile=True
    )
    past, x = np.zeros((3, 4), np.float32), np.ones((3, 4), np.float32)
    for step in range(1, 11):
        present, y = exe(past, x)
        assert present is past and (past == step).all() and y == 12 * step
        assert exe.wait_for_builds(300)
    exe.run_with([past, x], 1)
    assert (past == 11).all() and exe.specialised == {"n=3": "ready"}
    with pytest.raises(IngotError, match="read-only"):
        past.flags.writeable = False
        exe(past, x)


def test_profile_is_of_the_code_that_runs():
    exe = ingot.compile(BYTES, jobs=1, profile=True, specialise={"calls": 2})
    x = rows(6)
    assert exe.profile({"x": x}, runs=5).rows
    assert exe.specialised == {}, "a profile's calls are not counted"
    call(exe, x, 2)
    assert exe.wait_for_builds(300) and exe.specialised == {"n=6": "ready"}
    own = exe.profile({"x": x}, runs=5)
    assert len(own.rows) == len(exe._builds[((6, 96),)].exe.package.kernel_names)  # type: ignore
    assert all(row.time_us > 0 for row in own.rows)
    assert exe.profile({"x": rows(7)}, runs=5).rows
    with pytest.raises(IngotError, match="missing input"):
        exe.profile({})


def test_other_versions_and_empty_inputs_have_no_builds():
    nodes = [node("Add", "a b", "s"), node("MatMul", "s w", "y")]
    ports = [info("a", ["n", 4]), info("b", ["n", 4])], [info("y", ["n", 2])]
    proto = model("sum", nodes, *ports, {"w": weight(2, 4, 2)})
    exe = ingot.compile(proto.SerializeToString(), jobs=1, specialise={"calls": 2})
    a, b = rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    for _ in range(6):
        (y,) = exe(a, b[:1])  # broadcast: the model is compiled again for it
        np.testing.assert_allclose(y, (a + b[:1]) @ weight(2, 4, 2), atol=1e-5)
        assert exe(a[:0], b[:0])[0].shape == (0, 2)
    assert exe.wait_for_builds(300) and exe.specialised == {}


def test_static_models_are_plain():
    exe = ingot.compile(BYTES, jobs=1, shapes={"n": 6}, specialise=True)
    assert type(exe) is ingot.Executable
    call(exe, rows(6))


def test_saved_plans_hold_the_general_code(home: Path):
    cached(6)
    exe = specialising()
    build(exe, 6)
    exe.save(home / "plan")
    call(ingot.load(home / "plan"), rows(7))


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (1, "a bool or a mapping, not a int"),
        ("on", "not a str"),
        (None, "not a NoneType"),
        ({"builds": 3}, "no setting 'builds'"),
        ({"calls": 0}, "calls is 0"),
        ({"max_builds": True}, "max_builds is True"),
        ({"max_bytes": 1e9}, "max_bytes is 1000000000.0"),
    ],
)
def test_settings_are_checked(given, what: str):
    with pytest.raises(IngotError) as error:
        ingot.compile(BYTES, specialise=given)
    assert error.value.code == "bad-option" and what in str(error.value)


def test_it_needs_the_model_cache(home: Path):
    with pytest.raises(IngotError, match="ModelProto has no digest"):
        ingot.compile(dense(), specialise=True)
    with pytest.raises(IngotError, match="kernels=, has no digest"):
        ingot.compile(BYTES, specialise=True, kernels={"MyOp": object()})
    for off in ({"cache_dir": "off"}, {"cache_models": False}):
        with pytest.raises(IngotError, match="caching is off"):
            ingot.compile(BYTES, specialise=True, options=off)
    with pytest.raises(IngotError, match="bad-model") as error:
        ingot.compile(home / "absent.onnx", specialise=True)
    assert "specialise" not in str(error.value)


def test_limits_of_compilation_and_cache_are_reported():
    wanted = "failed: the general build is not in the model cache"
    with options.override(cache_limit_bytes=100):
        exe = specialising()
        build(exe, 6)
    assert wanted in exe.specialised["n=6"] and "CACHE_LIMIT" in exe.specialised["n=6"]
    plain = ingot.compile(BYTES, jobs=1, time_limit_s=0, specialise={"calls": CALLS})
    for count in range(2, 9):
        build(plain, count)
    assert all(state.startswith(wanted) for state in plain.specialised.values())
    assert len(plain.specialised) == 4, "it gives up"
