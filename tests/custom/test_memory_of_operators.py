"""The memory of operators written in Python returns to the pool with their executors."""

import gc
import threading
import weakref

import pytest
from memory import settled_bytes

import rsnet as mx
from rsnet import engine, nd, op

SHAPE = (64, 64)
ROUNDS = 4


def used():
    """Bytes in use in the host pool, after everything that is pending or unreachable is gone."""
    nd.waitall()
    gc.collect()
    return settled_bytes()  # waits and collects again, for what was pending meanwhile


class Keeping(mx.Operator):
    """Keeps its operands and a buffer of its own."""

    def __init__(self):
        self.buffer = nd.ones(SHAPE)

    def forward(self, ctx, in_data, req, out_data, aux_states):
        self.seen = in_data, out_data
        self.assign(out_data[0], req[0], in_data[0] * self.buffer)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        self.gradients = out_grad, in_grad
        self.assign(in_grad[0], req[0], out_grad[0] * self.buffer)


@mx.operator.register("memory_of_operator")
class KeepingProperty(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx):
        return Keeping()


class KeepingCustom(mx.operator.CustomOp):
    def __init__(self):
        super().__init__()
        self.buffer = nd.ones(SHAPE)

    def forward(self, is_train, req, in_data, out_data, aux):
        self.seen = in_data, out_data
        self.assign(out_data[0], req[0], in_data[0] * self.buffer)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.gradients = out_grad, in_grad
        self.assign(in_grad[0], req[0], out_grad[0] * self.buffer)


@mx.operator.register("memory_of_custom")
class KeepingCustomProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return KeepingCustom()


def closure(attrs, ctx, inputs, req, outputs):
    op.assign(outputs[0], req[0], inputs[0] * nd.ones(SHAPE))


def state_of(attrs, ctx, shapes, types):
    return {"buffer": nd.ones(SHAPE)}


def stateful(state, ctx, inputs, req, outputs):
    state["seen"] = inputs, outputs
    op.assign(outputs[0], req[0], inputs[0] * state["buffer"])


def registered(name):
    entry = op.register(name).set_num_inputs(1).set_num_outputs(1)
    entry.set_attr("FInferShape", op.ElemwiseShape(1, 1))
    return entry.set_attr("FInferType", op.ElemwiseType(1, 1))


registered("memory_of_closure").set_attr("FCompute<cpu>", closure)
registered("memory_of_state").set_attr("FCreateOpState", state_of).set_attr(
    "FStatefulCompute<cpu>", stateful
)

op.define("memory_of_kernel", inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))


@op.kernel("memory_of_kernel", tmp=lambda ctx: 4096)
class Kernel:
    def __init__(self):
        self.buffer = nd.ones(SHAPE)

    def compute(self, ctx):
        self.seen = ctx, ctx.inp("in"), ctx.out("out")
        ctx.out("out")[:] = ctx.inp("in")


SYMBOLS = {
    "Operator": (lambda x: mx.sym.memory_of_operator(x), True),
    "CustomOp": (lambda x: mx.sym.Custom(x, op_type="memory_of_custom"), True),
    "FCompute": (lambda x: mx.sym.memory_of_closure(x), False),
    "FStatefulCompute": (lambda x: mx.sym.memory_of_state(x), False),
    "kernel with state": (lambda x: mx.sym.memory_of_kernel(x), False),
}


@pytest.mark.parametrize(("symbol", "trains"), SYMBOLS.values(), ids=SYMBOLS)
def test_memory_returns_after_bind_run_and_drop(symbol, trains):
    def step():
        exe = symbol(symbol(mx.sym.var("x"))).simple_bind(
            mx.cpu(), grad_req="write" if trains else "null", x=SHAPE
        )
        for _ in range(2):
            exe.forward(is_train=trains)
            if trains:
                exe.backward([nd.ones(SHAPE)])
        exe.outputs[0].wait_to_read()
        return mx._core.memory_usage()[0]

    step()  # what a first use makes once may stay
    before = used()
    for _ in range(ROUNDS):
        assert step() > before
    assert used() == before


class Failing(mx.operator.CustomOp):
    """Fails after it has kept its operands, which the error's traceback keeps as well."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.seen = in_data, out_data, nd.ones(SHAPE)
        raise RuntimeError("fails with its operands")


@mx.operator.register("memory_of_failing")
class FailingProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Failing()


def test_memory_returns_after_an_operator_has_failed():
    def step():
        net = mx.sym.exp(mx.sym.Custom(mx.sym.var("x"), op_type="memory_of_failing"))
        exe = net.simple_bind(mx.cpu(), grad_req="null", x=SHAPE)
        with pytest.raises(RuntimeError, match="fails with its operands"):
            exe.forward()[0].wait_to_read()

    step()
    before = used()
    for _ in range(ROUNDS):
        step()
    assert used() == before


class Observer:
    """A hook that keeps arrays and refers to itself."""

    def __init__(self):
        self.array = nd.ones(SHAPE)
        self.finished = threading.Event()
        self.itself = self

    def __call__(self, event, number, name, ctx, time_ns):
        if event == "finished":
            self.finished.set()


def test_a_hook_that_refers_to_itself_is_collected_with_its_arrays():
    def step():
        observer = Observer()
        engine.set_hook(observer)
        v = engine.new_variable()
        engine.push_sync(lambda rc: None, mutate_vars=[v])
        engine.wait_for_var(v)
        assert observer.finished.wait(20)
        engine.set_hook(None)
        return weakref.ref(observer)

    step()
    before = used()
    refs = [step() for _ in range(ROUNDS)]
    assert used() == before
    assert [ref() for ref in refs] == [None] * ROUNDS


def test_a_pushed_function_that_refers_to_its_variable_is_released():
    def step():
        holder = {"variable": engine.new_variable(), "array": nd.ones(SHAPE)}

        def function(rc):
            return len(holder)

        holder["function"] = function
        engine.push_sync(function, mutate_vars=[holder["variable"]])
        engine.wait_for_var(holder["variable"])
        return weakref.ref(function)

    step()
    before = used()
    refs = [step() for _ in range(ROUNDS)]
    assert used() == before
    assert [ref() for ref in refs] == [None] * ROUNDS
