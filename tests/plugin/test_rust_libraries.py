"""Libraries in Rust: the examples of the crate rsnet-plugin, built and run."""

import numpy as np
import pytest
from plugins import compiled_rust
from processes import printed, run

import rsnet as mx
from rsnet import nd, sym

pytestmark = [pytest.mark.process, pytest.mark.slow]  # compiling a crate takes minutes

X = np.array([3, 1, 4, 1, 5, 9, 2, 6], "float32")


@pytest.fixture(scope="module", autouse=True)
def names():
    return mx.load_library(compiled_rust("forms"))


def test_an_operator_with_its_gradient():
    code = f"""
        import rsnet as mx
        print(mx.load_library({compiled_rust("cube")!r}))
        x = mx.nd.array([1.0, 2.0])
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.rust_cube(x, by=2)
        y.backward()
        print(y.asnumpy().tolist(), x.grad.asnumpy().tolist())
        try:
            mx.nd.rust_cube(x, by=-1).asnumpy()
        except mx.MXNetError as error:
            print(error)
    """
    done = run(code)  # Rust tells of the panic on the standard error stream
    assert done.returncode == 0, done.stderr
    loaded, values, error = done.stdout.splitlines()[:3]
    assert loaded == "['rust_cube']" and values == "[2.0, 16.0] [6.0, 24.0]"
    assert "rust_cube: panic: by is -1, expected 0 or more" in error


def test_an_operator_in_training():
    code = f"""
        import rsnet as mx
        mx.load_library({compiled_rust("cube")!r})
        x, w = mx.nd.array([0.2, 0.5, 1.0]), mx.nd.ones((1,))
        w.attach_grad()
        for _ in range(300):
            with mx.autograd.record():
                error = mx.nd.rust_cube(x * w, by=2) - mx.nd.rust_cube(x * 1.5, by=2)
                loss = (error ** 2).mean()
            loss.backward()
            w -= 0.002 * w.grad
        print(round(w.asscalar(), 3))
    """
    assert printed(code) == "1.5"


def test_shapes_that_depend_on_attributes(names):
    assert {"rust_window", "rust_windows", "rust_total"} <= set(names)
    assert nd.rust_window(nd.array(X), size=3).asnumpy().tolist() == [8, 6, 10, 15, 16, 17]
    assert nd.rust_windows(nd.array(X), size=2, mode="max").asnumpy().tolist() == [
        3, 4, 4, 5, 9, 9, 6,
    ]  # fmt: skip
    assert sym.rust_window(sym.var("x"), size=3).infer_shape(x=(50,))[1] == [(48,)]
    large = nd.ones(100_000)
    assert (nd.rust_window(large, size=5).asnumpy() == 5).all()
    for given, text in [
        ({}, "missing parameter 'size'"),
        ({"size": 0}, "expected at least 1"),
        ({"size": 99}, "size is 99, expected at most 8"),
        ({"size": 1, "mode": "max"}, "the greatest of one is that one"),
        ({"size": 1, "mode": "least"}, "expected one of: "),
    ]:
        with pytest.raises(mx.MXNetError, match=f"(?s)rust_window.*({text})|({text})"):
            nd.rust_window(nd.array(X), **given)
    # What inference or a check refuses is a value, what a kernel refuses is not.
    for given in ({"size": 99}, {"size": 1, "mode": "max"}):
        with pytest.raises(ValueError, match="rust_window"):
            nd.rust_window(nd.array(X), **given)
    with pytest.raises(mx.MXNetError) as caught:
        nd.rust_wrong(nd.ones(4), how="dtype").asnumpy()
    assert not isinstance(caught.value, ValueError)
    assert [str(s) for s in mx.sbp.signatures("rust_window", (8,), size=2)] == ["x:B y:B"]


def test_attributes_of_every_kind():
    shown = (
        'UInt({big}); Bool(true); Text("a b"); Ints([2, 3]); DType(DTypeCode {{ code: 2, bits: 16, '
        'lanes: 1 }}); Floats([0.5]); Shapes([[1, 2], []]); Texts(["a", "b"]); '
        "DTypes([DTypeCode {{ code: 0, bits: 8, lanes: 1 }}]); {maybe}"
    )
    cases = [
        ({}, shown.format(big=2**64 - 1, maybe="None")),
        ({"big": 2**63, "maybe": 1.5}, shown.format(big=2**63, maybe="Float(1.5)")),
        ({"big": 7}, shown.format(big=7, maybe="None")),
    ]
    for given, text in cases:
        with pytest.raises(mx.MXNetError) as caught:
            nd.rust_show(nd.ones(1), **given).asnumpy()
        assert text in str(caught.value)
    with pytest.raises(mx.MXNetError, match="big"):
        nd.rust_show(nd.ones(1), big=2**64)


def test_any_number_of_inputs_and_an_optional_one():
    a, b, c = nd.array(X), nd.array(2 * X), nd.array(X)
    assert np.allclose(nd.rust_total(a, b, arg_counts=(2, 0)).asnumpy(), 3 * X)
    assert np.allclose(nd.rust_total(x=[a, b], bias=c).asnumpy(), 13 * X)
    assert np.allclose(nd.rust_total(a, b, bias=c).asnumpy(), 13 * X)
    a.attach_grad()
    with mx.autograd.record():
        y = nd.rust_total(x=[a, b, a], bias=c)
    y.backward()
    assert np.allclose(a.grad.asnumpy(), 2)


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        ("float32", {}, 1),
        ("float32", {"fast": True}, 2),
        ("float16", {}, 1.5),
        ("int32", {}, 3),
        ("bool", {}, False),
    ],
)
def test_conditions_of_kernels(dtype, given, expected):
    y = nd.rust_which(nd.ones(2, dtype=dtype), **given)
    assert y.dtype == np.dtype(dtype) and y.asnumpy()[0] == expected
    with pytest.raises(mx.MXNetError, match="no kernel matches"):
        nd.rust_which(nd.ones(2, dtype="int64")).asnumpy()


def test_requests():
    node = sym.rust_requests(sym.var("x"))
    exe = node[1].simple_bind(mx.cpu(), x=X.shape, grad_req="null")
    assert np.allclose(exe.forward(x=nd.array(X))[0].asnumpy(), 2 * X)
    both = nd.rust_requests(nd.array(X))
    assert np.allclose(both[0].asnumpy(), X) and np.allclose(both[1].asnumpy(), 2 * X)
    total, grad = sym.rust_total(sym.var("x"), sym.var("z")), nd.ones(X.shape)
    exe = total.bind(mx.cpu(), {"x": nd.array(X), "z": nd.array(X)}, {"x": grad}, "add")
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward(nd.full(X.shape, 3))
    assert grad.asnumpy().tolist() == [7] * 8


def test_states_and_auxiliary_states():
    node = sym.rust_counts(sym.var("x"), name="n")
    exe = node.simple_bind(mx.cpu(), x=(2,), n_seen=(2,), grad_req="null")
    exe.arg_dict["x"][:] = 10
    assert [exe.forward()[0].asnumpy()[0] for _ in range(3)] == [11, 12, 13]
    assert exe.aux_dict["n_seen"].asnumpy().tolist() == [30, 30]


def test_random_numbers():
    mx.random.seed(3)
    first, second = (nd.rust_noise(nd.ones(1000)).asnumpy() for _ in range(2))
    mx.random.seed(3)
    assert (nd.rust_noise(nd.ones(1000)).asnumpy() == first).all() and (first != second).any()
    assert 0.4 < first.mean() < 0.6 and first.min() >= 0 and first.max() < 1


def test_in_place_and_temporary_space():
    node = sym.rust_reverse(sym.rust_reverse(sym.var("x") + 1))
    exe = node.simple_bind(mx.cpu(), x=X.shape, grad_req="null")
    assert np.allclose(exe.forward(x=nd.array(X))[0].asnumpy(), X + 1)
    assert np.allclose(nd.rust_reverse(nd.array(X)).asnumpy(), X[::-1])
    assert nd.rust_median(nd.array(X)).asscalar() == 4
    typed = sym.rust_median(sym.var("x")).simple_bind(mx.cpu(), x=(3,), grad_req="null")
    assert typed.arg_dict["x"].dtype == np.float32


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("twice", "output 0 overlaps memory that the kernel has taken before"),
        ("dtype", "input 0 has dtype float32 and is read as float64"),
        ("aux", "there is no auxiliary state"),
        ("state", "the operator has no state"),
        ("huge", "too many|cannot get"),
        ("panic", "panic: in a part"),
    ],
)
def test_mistakes_are_errors(how, text, capfd):
    with pytest.raises(mx.MXNetError, match=f"(?s)rust_wrong.*({text})"):
        nd.rust_wrong(nd.ones(4), how=how).asnumpy()
