"""Operators are asked for their resources with the real shapes, and a plan counts their temporary
space.
"""

import pytest

import rsnet as mx
from rsnet import operator

SEEN = []


@operator.register("resource_probe")
class Probe(operator.OperatorProperty):
    def list_arguments(self):
        return ["data", "weight"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def forward_resource(self, in_shape):
        SEEN.append(("forward", list(in_shape)))
        rows, columns = in_shape[0]
        return [("temp_space", 4 * rows * columns)]

    def backward_resource(self, in_shape):
        SEEN.append(("backward", list(in_shape)))
        return [("temp_space", 1000), "random"]

    def create_operator(self, ctx):
        return Copy()


class Copy(operator.Operator):
    def forward(self, ctx, in_data, req, out_data, aux):
        room = ctx.requested["temp_space"].get_space(in_data[0].shape)
        room[:] = in_data[0]
        self.assign(out_data[0], req[0], room)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        for grad, request, data in zip(in_grad, req, in_data):
            self.assign(grad, request, mx.nd.zeros(data.shape))


def seen():
    """The distinct calls since the last look."""
    calls = {(which, tuple(shapes)) for which, shapes in SEEN}
    SEEN.clear()
    return calls


def test_planning_binding_and_running_ask_with_real_shapes():
    net = mx.sym.resource_probe(mx.sym.Variable("x"), mx.sym.Variable("w"))
    shapes = {"x": (4, 6), "w": (2,)}
    known = ((4, 6), (2,))
    seen()
    plan = net.memory_plan(**shapes)
    assert seen() == {("forward", known), ("backward", known)}
    exe = net.simple_bind(mx.cpu(), **shapes)
    exe.forward(is_train=True)
    exe.backward(mx.nd.ones((4, 6)))
    mx.nd.waitall()
    assert seen() == {("forward", known), ("backward", known)}
    assert exe.memory_plan().temp_bytes == plan.temp_bytes


def test_a_recorded_call_asks_with_real_shapes():
    x, w = mx.nd.ones((4, 6)), mx.nd.ones((2,))
    x.attach_grad()
    seen()
    with mx.autograd.record():
        y = mx.nd.resource_probe(x, w)
    y.backward()
    mx.nd.waitall()
    known = ((4, 6), (2,))
    assert seen() == {("forward", known), ("backward", known)}


def test_a_plan_counts_temporary_space_once_where_nodes_cannot_run_side_by_side():
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    net = mx.sym.resource_probe(mx.sym.resource_probe(x, w), w)
    shapes = {"x": (4, 6), "w": (2,)}
    assert net.memory_plan(grad_req="null", **shapes).temp_bytes == 4 * 4 * 6
    assert net.memory_plan(**shapes).temp_bytes == 1000
    plain = (x * 2).memory_plan(x=(4, 6))
    assert plain.temp_bytes == 0 and "temporary" in str(net.memory_plan(**shapes))


@pytest.mark.parametrize(("number", "size"), list(enumerate([-1, 1.5, True, 2**63, 2**62])))
def test_a_wrong_number_of_bytes_is_named(number, size):
    class Wrong(Probe):
        def forward_resource(self, in_shape):
            return [("temp_space", size)]

    name = f"resource_wrong_{number}"
    operator.register(name)(Wrong)
    with pytest.raises(
        mx.MXNetError, match=f"{name}.*invalid size of temp_space .*: expected bytes"
    ):
        getattr(mx.nd, name)(mx.nd.ones((4, 6)), mx.nd.ones((2,))).wait_to_read()


KEPT = []


def asks(declared, wanted, keep=False):
    """An operator that declares temporary space and asks for arrays of these shapes."""
    name = f"resource_asks_{len(_names)}"
    _names.append(name)

    class Asks(operator.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            rooms = [ctx.requested[0].get_space(shape) for shape in wanted]
            for room in rooms:
                room[:] = 2
            self.assign(out_data[0], req[0], in_data[0] * sum(room[0] for room in rooms))
            if keep:
                KEPT[:] = [rooms[0], ctx.requested[0]]

    @operator.register(name)
    class AsksProperty(operator.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, in_shape, []

        def forward_resource(self, in_shape):
            return declared

        def create_operator(self, ctx):
            return Asks()

    return name


_names = []
X = mx.nd.array([1, 2, 3])


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [([("temp_space", 12)], [3]), ([("temp_space", 12)], [1, 2]), (["temp_space"], [100])],
)
def test_what_was_declared_is_given(declared, wanted):
    got = getattr(mx.nd, asks(declared, wanted))(X)
    assert got.asnumpy().tolist() == [2 * len(wanted) * x for x in (1, 2, 3)]


@pytest.mark.parametrize("wanted", [[4], [2, 2]])
def test_more_than_was_declared_is_refused(wanted):
    name = asks([("temp_space", 12)], wanted)
    with pytest.raises(mx.MXNetError, match="bytes: expected .* left of the 12 .* declared") as e:
        getattr(mx.nd, name)(X).wait_to_read()
    assert any(name in note for note in e.value.__notes__)


def test_temporary_space_ends_with_the_call():
    getattr(mx.nd, asks(["temp_space"], [3], keep=True))(X).wait_to_read()
    room, resource = KEPT
    KEPT.clear()
    with pytest.raises(mx.MXNetError, match="whose function has returned"):
        room.asnumpy()
    with pytest.raises(mx.MXNetError, match="ended"):
        resource.get_space((3,))
