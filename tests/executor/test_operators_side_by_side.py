"""Independent Python operators that release the interpreter run side by side."""

import threading

import numpy as np
import pytest

import rsnet as mx

SOON = 20.0
meeting = {}


class Meets(mx.operator.CustomOp):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def forward(self, is_train, req, in_data, out_data, aux):
        meeting[self.key, "forward"].wait(SOON)
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        meeting[self.key, "backward"].wait(SOON)
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("meets_side_by_side")
class MeetsProp(mx.operator.CustomOpProp):
    def __init__(self, key):
        super().__init__(need_top_grad=True)
        self.key = key

    def create_operator(self, ctx, shapes, dtypes):
        return Meets(self.key)


def barriers(key, n):
    for direction in ("forward", "backward"):
        meeting[key, direction] = threading.Barrier(n)


def outputs_of(key, n, before=lambda x: x, shared=False):
    inputs = [mx.sym.var("x")] * n if shared else [mx.sym.var(f"x{i}") for i in range(n)]
    op = {"op_type": "meets_side_by_side", "key": key}
    return mx.sym.Group([mx.sym.Custom(before(x), **op) for x in inputs])


@pytest.mark.parametrize("shared", [False, True], ids=["own inputs", "one input"])
@pytest.mark.parametrize("n", [2, 6])
def test_they_meet_in_forward_and_backward(n, shared):
    key = f"meet{n}{shared}"
    net = outputs_of(key, n, shared=shared)
    names = net.list_arguments()
    exe = net.simple_bind(mx.cpu(), **{name: (2, 3) for name in names})
    for _ in range(3):
        barriers(key, n)
        for name in names:
            exe.arg_dict[name][:] = 1
        for out in exe.forward(is_train=True):
            np.testing.assert_array_equal(out.asnumpy(), np.full((2, 3), 2.0))
        exe.backward([mx.nd.ones((2, 3))] * n)
        for name in names:
            expected = np.full((2, 3), 2.0 * n if shared else 2.0)
            np.testing.assert_array_equal(exe.grad_dict[name].asnumpy(), expected)


@pytest.mark.parametrize("grad_req", ["write", "null"])
@pytest.mark.parametrize("n", [2, 6])
def test_they_meet_behind_native_operators(n, grad_req):
    key = f"native{n}{grad_req}"
    barriers(key, n)
    net = outputs_of(key, n, before=lambda x: mx.sym.exp(mx.sym.sqrt(x)))
    exe = net.simple_bind(mx.cpu(), grad_req, **{f"x{i}": (8,) for i in range(n)})
    for _ in range(3):
        for out in exe.forward(is_train=grad_req == "write"):
            np.testing.assert_allclose(out.asnumpy(), np.full(8, 2.0))


@pytest.mark.parametrize("memory_limit", [None, "1GB"])
def test_they_meet_with_larger_arrays_and_within_a_limit(memory_limit):
    key = f"larger{memory_limit}"
    barriers(key, 6)
    x = mx.sym.var("x")
    net = mx.sym.add_n(*[meets(x, key) for _ in range(6)])
    exe = net.simple_bind(mx.cpu(), memory_limit=memory_limit, x=(256, 256))
    exe.arg_dict["x"][:] = 1
    (out,) = exe.forward(is_train=True)
    np.testing.assert_array_equal(out.asnumpy(), np.full((256, 256), 12.0))
    exe.backward(mx.nd.ones((256, 256)))
    np.testing.assert_array_equal(exe.grad_dict["x"].asnumpy(), np.full((256, 256), 12.0))


def test_a_limit_that_leaves_no_room_is_kept():
    x = mx.sym.var("x")
    net = mx.sym.add_n(*[mx.sym.exp(meets(x, "none")) for _ in range(6)])
    apart = net.memory_plan(x=(256, 256))
    limited = net.memory_plan(x=(256, 256), memory_limit=apart.arena_bytes - 1)
    assert limited.arena_bytes < apart.arena_bytes and limited.recomputed_nodes == 0


def meets(y, key):
    return mx.sym.Custom(y, op_type="meets_side_by_side", key=key)


#: By tower, the meeting of every operator; "" is for one that meets no other.
MEETINGS = {
    "in step": (["a", "b"], ["a", "b"]),
    "first and last": (["a", ""], ["", "a"]),
    "last and first": (["", "a"], ["a", ""]),
}


@pytest.mark.parametrize("joined", [False, True], ids=["two heads", "one head"])
@pytest.mark.parametrize("grad_req", ["null", "write"])
@pytest.mark.parametrize("meetings", MEETINGS)
def test_operators_of_two_towers_meet(joined, grad_req, meetings):
    """Native operators are before, between and behind them, some of both towers side by side."""
    prefix = f"towers{joined}{grad_req}{meetings}"
    stem, heads = mx.sym.relu(mx.sym.var("x")), []
    for tower, keys in enumerate(MEETINGS[meetings]):
        y = mx.sym.exp(stem * (tower + 2.0) * 0.25) - 0.5
        for key in keys:
            y = mx.sym.log(meets(mx.sym.sqrt(y + tower), prefix + key) + 1.5) * 0.75
        heads.append(y)
    net = heads[0] + heads[1] if joined else mx.sym.Group(heads)
    exe = net.simple_bind(mx.cpu(), grad_req, x=(8,))
    exe.arg_dict["x"][:] = 1
    for _ in range(3):
        for key in "ab":
            barriers(prefix + key, 2)
        barriers(prefix, 1)
        outputs = exe.forward(is_train=grad_req == "write")
        for tower, out in enumerate([] if joined else outputs):
            y = np.exp((tower + 2) * 0.25) - 0.5
            for _ in range(2):
                y = np.log(2 * np.sqrt(y + tower) + 1.5) * 0.75
            np.testing.assert_allclose(out.asnumpy(), np.full(8, y), rtol=1e-5)
        if grad_req == "write":
            exe.backward([mx.nd.ones((8,))] * len(outputs))
            assert np.isfinite(exe.grad_dict["x"].asnumpy()).all()
        mx.nd.waitall()


def test_an_operator_meets_one_that_reads_the_input_of_a_native_operator():
    """The native one may not overwrite its input, or it would wait for the reader."""
    barriers("beside", 2)
    stem = mx.sym.exp(mx.sym.var("x"))
    net = mx.sym.Group([meets(stem, "beside"), meets(mx.sym.sqrt(stem), "beside")])
    exe = net.simple_bind(mx.cpu(), "null", x=(8,))
    one, other = exe.forward()
    np.testing.assert_allclose(one.asnumpy(), np.full(8, 2.0))
    np.testing.assert_allclose(other.asnumpy(), np.full(8, 2.0))


def test_segments_hold_what_the_same_operators_lead_to():
    a = mx.sym.exp(meets(mx.sym.exp(mx.sym.var("x")), "none"))
    b = mx.sym.exp(meets(mx.sym.sqrt(mx.sym.var("y")), "none"))
    exe = mx.sym.Group([a, b]).simple_bind(mx.cpu(), "null", x=(8,), y=(8,))
    lines = [line for line in exe.debug_str().splitlines() if line.startswith("segment")]
    assert sorted(lines) == [
        "segment [1, 2) [5, 6)", "segment [2, 3)", "segment [3, 4)", "segment [6, 7)",
        "segment [7, 8)",
    ]  # fmt: skip


def towers(depth):
    heads = []
    for i in range(2):
        y = mx.sym.var(f"x{i}")
        for _ in range(depth):
            y = mx.sym.exp(meets(y, "none"))
        heads.append(mx.sym.sum(y))
    return mx.sym.Group(heads).memory_plan(grad_req="null", x0=(1 << 20,), x1=(1 << 20,))


def test_memory_for_that_is_bounded_by_what_the_graph_has_anyway():
    array = 4 << 20
    least, one = towers(1), towers(2)
    assert one.arena_bytes >= 3 * array  # two branches at a time
    given = 2 * array + least.output_bytes
    assert towers(40).arena_bytes <= 2 * array + given  # the operators of deep towers take turns


def test_a_chain_runs_in_the_pushing_thread():
    """No other operator could run meanwhile, so a change of threads would only cost time."""
    threads = []

    class Notes(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            threads.append(threading.get_ident())
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("notes_its_thread")
    class NotesProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Notes()

    net = mx.sym.var("x")
    for _ in range(3):
        net = mx.sym.Custom(net, op_type="notes_its_thread")
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(2,))
    exe.forward()[0].wait_to_read()
    assert threads == [threading.get_ident()] * 3


@mx.operator.register("doubles_side_by_side")
class DoublesProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        class Doubles(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0] * 2)

            def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
                self.assign(in_grad[0], req[0], out_grad[0] * 2)

        return Doubles()


def random_heads(namespace, seed, given):
    """A few values of a random graph of native operators and ones in Python over two inputs."""
    rng, values = np.random.default_rng(seed), list(given)
    for _ in range(14):
        a, b = (values[max(0, len(values) - 1 - int(rng.integers(5)))] for _ in range(2))
        kind = rng.integers(6)
        if kind < 2:
            value = namespace.Custom(a, op_type="doubles_side_by_side") * 0.5
        elif kind == 2:
            value = a * 0.5 + b * 0.25
        elif kind == 3:
            value = namespace.where(a > b, a, namespace.zeros_like(b))
        else:
            value = (namespace.tanh if kind == 4 else namespace.sigmoid)(a)
        values.append(value)
    return values[-4:]


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_compute_what_calls_compute(seed):
    rng = np.random.default_rng(seed)
    x, y = (mx.nd.array(rng.normal(size=(4, 6))) for _ in range(2))
    for array in (x, y):
        array.attach_grad()
    with mx.autograd.record():
        expected = random_heads(mx.nd, seed, (x, y))
    mx.autograd.backward(expected)
    net = mx.sym.Group(random_heads(mx.sym, seed, (mx.sym.var("x"), mx.sym.var("y"))))
    given = {"x": x, "y": y}
    names = net.list_arguments()
    for grad_req in ("null", "write"):
        exe = net.simple_bind(mx.cpu(), grad_req, **{name: (4, 6) for name in names})
        for _ in range(2):
            outputs = exe.forward(grad_req == "write", **{name: given[name] for name in names})
            for got, want in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=1e-5)
            if grad_req == "write":
                exe.backward([mx.nd.ones((4, 6))] * 4)
                for name in names:
                    got, want = exe.grad_dict[name], given[name].grad
                    np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), 1e-5, 1e-6)
