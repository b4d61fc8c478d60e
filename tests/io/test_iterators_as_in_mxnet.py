"""`DataIter` and `NDArrayIter`: what programs written for MXNet read from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rsnet as mx


def rows(batch):
    return batch.data[0].asnumpy().astype(int).tolist()


def test_arrays_are_ndarrays_with_the_names_of_mxnet():
    it = mx.io.NDArrayIter({"b": np.zeros((10, 3)), "a": np.zeros(10, "int64")}, np.arange(10), 4)
    assert [name for name, _ in it.data] == ["a", "b"]
    assert all(isinstance(x, mx.nd.NDArray) and x.dtype == np.float32 for _, x in it.data)
    assert (it.num_source, it.num_data, it.cursor) == (3, 10, -4)
    assert it.idx.tolist() == list(range(10))
    assert [x.shape for x in it.data_list] == [(10,), (10, 3), (10,)]
    kept = mx.io.NDArrayIter(mx.nd.array([1, 2], dtype="int32"), batch_size=1)
    assert kept.provide_data[0].dtype == np.int32


def test_a_batch_has_memory_of_its_own():
    it = mx.io.NDArrayIter(np.arange(4), batch_size=2)
    it.next().data[0][:] = 9
    assert it.data[0][1].asnumpy().tolist() == [0, 1, 2, 3]


def test_a_batch_may_be_much_larger_than_the_data():
    size = 10**6
    (batch,) = mx.io.NDArrayIter({"a": np.arange(8).reshape(4, 2)}, batch_size=size)
    expected = np.resize(np.arange(8, dtype="float32").reshape(4, 2), (size, 2))
    assert batch.pad == size - 4
    np.testing.assert_array_equal(batch.data[0].asnumpy(), expected)
    for size in (10**10, 2**31):
        with pytest.raises(ValueError, match=f"invalid batch_size {size}: expected at most"):
            mx.io.NDArrayIter(np.zeros(4), batch_size=size)


# The cursor at each batch, at the end of the epoch and after `reset`, over two epochs of 10 rows.
CURSORS = {
    "pad": [[0, 4, 8, 12, -4]] * 2,
    "discard": [[0, 4, 8, -4]] * 2,
    "roll_over": [[0, 4, 8, -6], [-2, 2, 6, 10, -4]],
}


@pytest.mark.parametrize("mode", CURSORS)
def test_cursor_over_epochs(mode):
    it = mx.io.NDArrayIter(np.arange(10), batch_size=4, last_batch_handle=mode)
    seen = []
    for _ in range(2):
        epoch = [it.cursor for _ in it] + [it.cursor]
        it.reset()
        seen.append([*epoch, it.cursor])
    assert seen == CURSORS[mode]


@given(
    n=st.integers(1, 12),
    size=st.integers(1, 9),
    mode=st.sampled_from(["pad", "discard", "roll_over"]),
    shuffle=st.booleans(),
)
def test_epochs_hold_the_rows_that_the_mode_promises(n, size, mode, shuffle):
    """One stream of rows for 'roll_over'; separate epochs else. `pad` counts foreign rows."""
    it = mx.io.NDArrayIter(np.arange(n), np.arange(n) + 100, size, shuffle, mode)
    stream = []
    orders = []
    kept = 0
    for _ in range(4):
        order = it.data[0][1].asnumpy().astype(int).tolist()
        assert sorted(order) == list(range(n))
        batches = list(it)
        for batch in batches:
            np.testing.assert_array_equal(batch.label[0].asnumpy(), batch.data[0].asnumpy() + 100)
        got = [r for b in batches for r in rows(b)]
        pads = [b.pad for b in batches]
        if mode == "pad":
            more = -n % size
            assert got == (order * (size + 1))[: n + more]
            assert pads == [0] * (len(pads) - 1) + [more]
        elif mode == "discard":
            assert got == order[: n - n % size] and not any(pads)
        elif batches:
            assert pads == [kept] + [0] * (len(pads) - 1)
        kept = (kept + n) % size
        stream += got
        orders += order
        it.reset()
    if mode == "roll_over":
        assert stream == orders[: len(stream)] and len(orders) - len(stream) == kept


def test_an_epoch_of_fewer_rows_than_a_batch_is_empty_with_discard():
    it = mx.io.NDArrayIter(np.arange(3), batch_size=4, last_batch_handle="discard")
    assert list(it) == []
    it.reset()
    assert list(it) == []


def test_hard_reset_forgets_rows_of_the_epoch_before():
    it = mx.io.NDArrayIter(np.arange(5), batch_size=3, last_batch_handle="roll_over")
    list(it)
    it.hard_reset()
    assert rows(it.next()) == [0, 1, 2]


def test_data_and_labels_of_one_name_are_two_arrays():
    names = {"data_name": "x", "label_name": "x"}
    it = mx.io.NDArrayIter(
        np.arange(5), np.arange(5) * 10, batch_size=2, last_batch_handle="roll_over", **names
    )
    assert it.num_source == 2
    list(it)
    it.reset()
    batch = it.next()
    assert rows(batch) == [4, 0]
    assert batch.label[0].asnumpy().tolist() == [40, 0]
    with pytest.raises(ValueError, match="invalid numbers of rows {'x': 6, 'x': 4}: expected one"):
        mx.io.NDArrayIter(np.zeros(6), np.zeros(4), batch_size=2, **names)


def test_shuffles_compose_and_idx_is_the_last_one():
    """From the second epoch on the rows that MXNet gives for the same seed."""
    np.random.seed(3)
    it = mx.io.NDArrayIter(np.arange(10), batch_size=10, shuffle=True)
    assert it.idx.tolist() == rows(it.next()) == [5, 4, 1, 2, 9, 6, 7, 0, 3, 8]
    it.reset()
    assert it.idx.tolist() == [2, 3, 1, 4, 8, 9, 5, 7, 0, 6]
    assert rows(it.next()) == [1, 2, 4, 9, 3, 8, 6, 0, 5, 7]


class TwoBatches(mx.io.DataIter):
    def __init__(self):
        super().__init__(batch_size=2)
        self.count = 0

    def iter_next(self):
        self.count += 1
        return self.count <= 2

    def getdata(self):
        return [mx.nd.ones((2,))]


def test_a_subclass_needs_only_iter_next_and_getdata():
    batches = list(TwoBatches())
    assert len(batches) == 2
    assert (batches[0].label, batches[0].pad, batches[0].index) == (None, 0, None)
    with pytest.raises(NotImplementedError, match="'iter_next'"):
        mx.io.DataIter().next()


def test_no_batch_before_the_first():
    with pytest.raises(ValueError, match="iter_next"):
        mx.io.NDArrayIter(np.arange(3), batch_size=2).getdata()


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        ("abc", TypeError, "invalid data 'abc': expected an NDArray"),
        (np.float32(3), TypeError, "expected an array of rows"),
        ([1, 2], TypeError, "_0_data"),
        ([], ValueError, "no data"),
        (np.zeros((0, 3)), ValueError, "at least one row"),
    ],
)
def test_data_that_is_no_array_of_rows(source, error, text):
    with pytest.raises(error, match=text):
        mx.io.NDArrayIter(source)


def test_descriptions_from_lists():
    descs = mx.io.DataDesc.get_list([("a", (2, 3))], [("a", "float16")])
    assert descs[0] == ("a", (2, 3)) and descs[0].dtype == "float16"
    assert mx.io.DataDesc.get_list([("a", (2,))], None)[0].dtype == np.float32


@pytest.mark.parametrize(("internal", "second"), [(True, [0, 1, 2, 0]), (False, [1, 2, 0, 1])])
def test_epochs_of_another_size(internal, second):
    it = mx.io.ResizeIter(mx.io.NDArrayIter(np.arange(3), batch_size=1), 4, internal)
    assert [rows(b)[0] for b in it] == [0, 1, 2, 0]
    it.reset()
    assert [rows(b)[0] for b in it] == second
    assert it.provide_data[0].shape == (1,)


def test_an_iterator_without_batches_cannot_be_resized():
    empty = mx.io.NDArrayIter(np.arange(3), batch_size=4, last_batch_handle="discard")
    with pytest.raises(ValueError, match="expected one batch at least"):
        mx.io.ResizeIter(empty, 2).next()


@pytest.mark.parametrize("size", [1.5, "3", None])
def test_a_batch_size_is_an_integer(size):
    with pytest.raises(TypeError, match="invalid batch_size .*: expected an integer"):
        mx.io.NDArrayIter(np.zeros((4, 2)), batch_size=size)
