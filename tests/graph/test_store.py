"""The store of constants: equal bytes once, mapped files left in their files, and thrift."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.graph.layouts import pack, pack_into, packed_shape, panels
from ingot.graph.store import _PIECE_BYTES, ConstantStore, LazyConstant
from tests.small import small_model


def resident_file_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) << 10 for x in lines if x.startswith("RssFile"))


def test_reading_a_mapped_constant_does_not_keep_it_in_memory(tmp_path):
    size = 3 * _PIECE_BYTES
    path = tmp_path / "weights"
    np.arange(size // 4, dtype=np.int32).tofile(path)
    array = np.memmap(path, np.int32, "r").reshape(16, -1)
    store, before = ConstantStore(drops_unused=True), resident_file_bytes()
    ref = store.add(array)
    assert resident_file_bytes() - before < _PIECE_BYTES
    blob = np.zeros(size + 64, np.uint8)
    store.move(ref, blob, [64])
    assert resident_file_bytes() - before < _PIECE_BYTES
    assert ref not in store
    np.testing.assert_array_equal(blob[64:].view(np.int32), np.arange(size // 4))


@pytest.mark.parametrize("make", [np.array, lambda a: a.copy().T])
def test_a_constant_in_memory_is_moved_whole(make):
    array = make(np.arange(12, dtype=np.float32).reshape(3, 4))
    store = ConstantStore()
    blob = np.zeros(200, np.uint8)
    ref = store.add(array)
    store.move(ref, blob, [0, 100])
    for start in (0, 100):
        np.testing.assert_array_equal(blob[start : start + 48].view(np.float32), array.ravel())
    assert ref in store  # the store does not drop unused constants


def test_only_a_store_that_drops_unused_constants_frees_them():
    for drops_unused in (False, True):
        store = ConstantStore(drops_unused)
        kept, other = store.add(np.zeros(3)), store.add(np.ones(3))
        store.retain([kept])
        assert kept in store and (other in store) is not drops_unused


def test_a_private_mapping_keeps_what_was_written_to_it(tmp_path):
    path = tmp_path / "weights"
    np.zeros(5000, np.int32).tofile(path)
    array = np.memmap(path, np.int32, "c")
    array[:] = 7
    store = ConstantStore()
    assert (store.get(store.add(array)) == 7).all()


def test_compiling_a_session_of_ones_own_keeps_its_constants():
    session = api.make_session()
    pipeline.run_stages(small_model(), session)
    assert len(session.store) >= 2
    assert ingot.compile(small_model(), jobs=1).package.constants.nbytes >= 60


def test_every_piece_of_a_large_constant_is_hashed():
    """Constants of more than one piece, hashed in threads; row-major or column-major."""
    store, size = ConstantStore(), 3000
    matrix = np.arange(size * size, dtype=np.float32).reshape(size, size)
    ref = store.add(matrix)
    transposed = np.asfortranarray(matrix)
    assert not transposed.flags.c_contiguous and store.add(transposed) == ref
    np.testing.assert_array_equal(store.get(store.add(matrix.T)), matrix.T)
    assert store.add(matrix.T) != ref
    for place in (0, -1):
        other = matrix.copy()
        other[place, place] += 1
        assert store.add(other) != ref


LARGE = np.arange(1 << 19, dtype=np.float32).reshape(1 << 9, -1)


@pytest.mark.parametrize("array", [LARGE, LARGE[:7, :5]], ids=["large", "small"])
def test_a_lazy_constant_is_materialized_when_it_is_moved(array):
    """A large lazy constant is not hashed; a small one has the digest of its bytes."""
    layout = panels((0,), 1, 48)
    filled: list[int] = []

    def fill(source, out):
        filled.append(out.nbytes)
        pack_into(layout, source, out)

    store, want = ConstantStore(drops_unused=True), pack(layout, array)
    lazy = LazyConstant(array, packed_shape(layout, array.shape), fill)
    source = store.add(array)
    ref = store.derive(source, "in panels", lazy)
    assert store.derive(source, "in panels", lazy) == ref
    assert store.derive(source, "in other panels", lazy) != ref or array is not LARGE
    assert ref.shape == want.shape and ref.dtype == "f32"
    assert not filled or array is not LARGE
    blob = np.zeros(2 * want.nbytes + 64, np.uint8)
    places = [0, want.nbytes + 64]
    store.move(ref, blob, places)
    for start in places:
        np.testing.assert_array_equal(
            blob[start : start + want.nbytes].view(np.float32), want.ravel()
        )
    assert ref not in store


def test_a_view_of_a_constant_is_a_constant_and_moves_in_order():
    store = ConstantStore()
    ref = store.derive(store.add(LARGE), "transposed", LARGE.T)
    assert np.shares_memory(store.get(ref), LARGE) and not store.get(ref).flags.writeable
    blob = np.zeros(LARGE.nbytes, np.uint8)
    store.move(ref, blob, [0])
    np.testing.assert_array_equal(blob.view(np.float32).reshape(LARGE.T.shape), LARGE.T)


def test_a_lazy_constant_can_be_read_and_saved(tmp_path):
    layout = panels((0,), 1, 48)
    lazy = LazyConstant(LARGE, packed_shape(layout, LARGE.shape), partial(pack_into, layout))
    store, want = ConstantStore(), pack(layout, LARGE)
    ref = store.derive(store.add(LARGE), "in panels", lazy)
    store.save(tmp_path / "all.npz")
    again = ConstantStore()
    again.load(tmp_path / "all.npz")
    for each in (again, store):
        np.testing.assert_array_equal(each.get(ref), want)
        assert each.get(ref) is each.get(ref)
