"""Pickles and copies of arrays and symbols, and names that programs of MXNet take from modules."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, sym

DTYPES = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]

# What MXNet 1.9.1 writes: a call of the class with None, then its state. Made by hand, with the
# opcodes of protocol 2.
RECORD = nd.array([[1, 2], [3, 4]]).__getstate__()["handle"]


def mxnet_pickle(module, name, state):
    head = f"\x80\x02c{module}\n{name}\n".encode("latin-1")
    body = pickle.dumps(state, 2)[2:-1]
    return head + b"N\x85R" + body + b"b."


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_pickled_with_their_dtype(dtype):
    x = nd.array([[0, 1, 2]], dtype=dtype)
    y = pickle.loads(pickle.dumps(x))
    assert y.dtype == x.dtype and (y.asnumpy() == x.asnumpy()).all()


def test_a_state_is_a_record_of_a_file():
    x = nd.array([[1, 2], [3, 4]])
    assert list(x.__getstate__()) == ["handle"] and isinstance(
        x.__getstate__()["handle"], bytearray
    )
    empty = nd.NDArray.__new__(nd.NDArray)
    assert empty.shape == (0,)
    empty.__setstate__(x.__getstate__())
    assert empty.shape == (2, 2) and (empty.asnumpy() == x.asnumpy()).all()
    empty += 1
    assert x.asnumpy().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="without a state"):
        empty.__setstate__(x.__getstate__())
    with pytest.raises(TypeError, match="functions such as nd.array make arrays"):
        nd.NDArray(3)


@pytest.mark.process
def test_pickles_of_mxnet_load():
    array = mxnet_pickle("mxnet.ndarray.ndarray", "NDArray", {"handle": RECORD})
    code = (
        "import pickle, rsnet; rsnet.as_mxnet()\n"
        f"x = pickle.loads({array!r})\n"
        "assert x.asnumpy().tolist() == [[1, 2], [3, 4]], x\n"
        "assert type(x) is rsnet.nd.NDArray\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_symbols_are_pickled_by_their_json():
    net = sym.FullyConnected(sym.Variable("x", attr={"a": "1"}), num_hidden=2, name="fc")
    state = net.__getstate__()
    assert state == {"handle": net.tojson(remove_amp_cast=False)}
    again = sym.Symbol.__new__(sym.Symbol)
    again.__setstate__(state)
    assert again.attr_dict() == net.attr_dict() == pickle.loads(pickle.dumps(net)).attr_dict()
    pair = pickle.loads(pickle.dumps(sym.Group([net, sym.Variable("y")])))
    assert pair.list_outputs() == ["fc_output", "y"]
    assert copy.deepcopy(sym.Variable("x", shape=(2,))).attr("__shape__") == "(2,)"


def test_an_operator_alone_takes_its_inputs_later():
    net = sym.FullyConnected(sym.Variable("x"), num_hidden=3, name="fc")
    alone = net._gen_atomic_symbol()
    assert alone.list_arguments() == [] and alone.list_outputs() == ["output"]
    made = alone(data=sym.Variable("q"), name="w")
    assert made.list_arguments() == ["q", "w_weight", "w_bias"]
    x, y, z = map(sym.Variable, "xyz")
    assert alone(x, y, z).list_arguments() == ["x", "y", "z"]
    assert made.infer_shape(q=(4, 5))[1] == [(4, 3)]
    with pytest.raises(ValueError, match="unknown argument 'nothing'"):
        alone(nothing=x)
    with pytest.raises(mx.MXNetError, match="is a variable"):
        x._gen_atomic_symbol()


def test_methods_of_arrays_under_old_names():
    x = nd.zeros((2, 2))
    x._sync_copyfrom(np.ones((2, 2)))
    assert x.asnumpy().tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match=r"invalid shape \(3,\) to copy: expected \(2, 2\)"):
        x._sync_copyfrom(np.ones(3))
    x._full(4)
    assert x.asnumpy().tolist() == [[4, 4], [4, 4]]
    assert x.as_nd_ndarray() is x and nd.from_dlpack(x.to_dlpack_for_read()).shape == (2, 2)
    shared = nd.from_dlpack(x.to_dlpack_for_write())
    shared[:] = 7
    shared.wait_to_read()
    assert x.asnumpy().max() == 7
    for call in (x.as_np_ndarray, sym.Variable("x").as_np_ndarray):
        with pytest.raises(NotImplementedError, match=r"`mx.np` is not in rsnet"):
            call()
    assert nd.array([[2]]).asscalar() == 2


@pytest.mark.parametrize("axes", [((0, 1), (1, 1)), ((1, -2), (0, 1))])
def test_moveaxis_refuses_repeated_axes(axes):
    with pytest.raises(ValueError, match="expected every axis once"):
        nd.moveaxis(nd.ones((2, 3, 4)), *axes)


def test_arguments_by_the_names_of_mxnet():
    x = nd.array([1, 2, 3])
    assert nd.power(base=x, exp=2).asnumpy().tolist() == [1, 4, 9]
    assert sym.power(base=sym.Variable("x"), exp=2).eval(x=x)[0].asnumpy().tolist() == [1, 4, 9]
    assert nd.empty((2,), stype="default").shape == (2,)
    with pytest.raises(NotImplementedError, match="csr"):
        nd.empty((2,), stype="csr")
    assert x.reshape(3, 1, shape=(1, 3)).shape == (3, 1)
    counts = sym.histogram(sym.Variable("x"), bins=2, range=(0, 4)).eval(x=x)[0]
    assert counts.asnumpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="invalid range None: expected"):
        sym.histogram(sym.Variable("x"), bins=2)


def test_np_shape_decorates_functions_methods_and_properties():
    @mx.util.use_np_shape
    class Model:
        def method(self):
            return mx.is_np_shape()

        @property
        def value(self):
            return mx.is_np_shape()

    assert (Model().method(), Model().value, mx.is_np_shape()) == (True, True, False)


@pytest.mark.parametrize("scope", [mx.AttrScope, mx.name.NameManager])
def test_current_objects_of_a_thread_by_their_old_name(scope):
    seen = []
    with scope() as _:
        inside = scope._current.value
        assert inside is scope.current
        thread = threading.Thread(target=lambda: seen.append(scope._current.value))
        thread.start()
        thread.join()
    assert seen[0] is not inside
    with pytest.raises(AttributeError, match="other"):
        _ = scope._current.other


def test_the_default_context_by_its_old_name():
    with mx.cpu(1):
        assert mx.Context._default_ctx.value == mx.cpu(1)
        mx.Context._default_ctx.value = mx.cpu(2)
        assert mx.current_context() == mx.cpu(2)
    assert mx.current_context() == mx.cpu(0)


def test_names_of_base_and_of_modules():
    base = mx.base
    assert base.mx_real_t is np.float32 is nd.ndarray.mx_real_t
    assert base.c_str("a").value == b"a"
    assert list(base.c_array(base.mx_uint, [1, 2])) == [1, 2]
    assert list(base.c_str_array(["x", "y"])) == [b"x", b"y"]
    assert issubclass(base.with_metaclass(type, dict), dict)
    assert nd.ndarray._DTYPE_NP_TO_MX[np.float64] == 1 and nd._GRAD_REQ_MAP["add"] == 3
    import rsnet.ndarray.utils as utils

    assert utils.load is nd.load and utils.zeros is nd.zeros


def test_a_star_import_of_the_helpers_brings_modules():
    found = {}
    exec("from rsnet.test_utils import *", found)
    assert found["mx"] is mx and found["np"] is np and found["nd"] is nd
    assert found["npt"] is np.testing and "assert_almost_equal" in found and "os" in found
    low, high = found["rand_coord_2d"](1, 2, 5, 6)
    assert (low, high) == (1, 5)
    assert found["get_identity_mat_batch"](2).shape == (2, 2, 2)
    basis = found["new_orthonormal_matrix_2d"](3)
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-6)
    plain = found["new_matrix_with_real_eigvals_nd"]((2, 3, 3))
    assert np.abs(np.linalg.eigvals(plain).imag).max() < 1e-6
    even = found["new_sym_matrix_with_real_eigvals_nd"]((2, 3, 3))
    np.testing.assert_allclose(even, even.swapaxes(1, 2), atol=1e-6)


PARTIAL = [
    (lambda: sym.pick(V("d"), V("i"), axis=1), {"d": (2, 0, 4)}, [(2, 0, 4), (2, 4)], [(2, 4)]),
    (lambda: sym.repeat(V("d"), repeats=2, axis=1), {"d": (0, 3)}, [(0, 3)], [(0, 6)]),
    (lambda: sym.take(V("d"), V("i"), axis=1), {"d": (2, 0, 5), "i": (4,)}, None, [(2, 4, 5)]),
    (lambda: sym.split_v2(V("d"), (1,), axis=1), {"d": (0, 5)}, None, [(0, 1), (0, 4)]),
    (lambda: sym.depth_to_space(V("d"), block_size=2), {"d": (0, 4, 2, 3)}, None, [(0, 1, 4, 6)]),
    (lambda: sym.space_to_depth(V("d"), block_size=2), {"d": (0, 4, 2, 6)}, None, [(0, 16, 1, 3)]),
    (lambda: sym.slice_like(V("d"), V("l")), {"d": (4, 5), "l": (0, 3)}, None, [(0, 3)]),
    (lambda: sym.slice_like(V("d"), V("l"), axes=(1,)), {"d": (0, 5), "l": (2, 3)}, None, [(0, 3)]),
    (lambda: sym.broadcast_like(V("a"), V("b")), {"a": (1, 3), "b": (0, 3)}, None, [(0, 3)]),
    (lambda: sym.contrib.arange_like(V("a"), axis=1), {"a": (0, 5)}, None, [(5,)]),
]
V = sym.Variable


@pytest.mark.parametrize(("made", "given", "inputs", "outputs"), PARTIAL)
def test_what_is_known_of_a_shape_goes_on(made, given, inputs, outputs):
    found, results, _ = made().infer_shape_partial(**given)
    assert results == outputs
    assert inputs is None or found == inputs


def test_outputs_are_named_and_counted_as_in_mxnet():
    def names(made):
        return made.list_outputs()

    assert names(sym.split(V("x"), num_outputs=1, name="n")) == ["n_output0"]
    assert names(sym.sort(V("x"), name="n")) == ["n_output0"]
    eight = [V(c) for c in "abcdefgh"]
    assert names(sym.contrib.hawkesll(*eight, name="n")) == ["n_output", "n_out_state"]
    det = mx.sym.linalg.det(V("x"))
    assert '"node_row_ptr": [0, 1, 4]' in det.tojson()


def test_an_empty_axis_is_cut_to_an_empty_part():
    with mx.np_shape(True):
        assert nd.slice_axis(nd.zeros((2, 0)), axis=1, begin=1, end=3).shape == (2, 0)
