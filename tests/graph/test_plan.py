"""Memory plans: as data, as pictures, between passes, with recomputation and under limits."""

import gc
import re
import time

import numpy as np
import pytest
from networks import mlp, nd, sym

import rsnet as mx
from rsnet.base import MXNetError


def chain(length, **attrs):
    """Activations one after another; every fifth is without the attributes."""
    net = sym.Variable("x")
    for i in range(length):
        with mx.AttrScope(**(attrs if i % 5 else {})):
            net = sym.Activation(net, act_type="tanh", name=f"t{i}")
    return sym.MakeLoss(net, name="loss")


def overlapping(plan):
    """Pairs of entries that are alive at once in the same bytes without sharing them in place."""
    entries = [e for e in plan.entries if e.internal and e.bytes]
    root = {}
    for e in plan.entries:
        root[e.name] = root.get(e.inplace_of, e.inplace_of) or e.name
    found = []
    for i, a in enumerate(entries):
        for b in entries[:i]:
            alive = a.first_use <= b.last_use and b.first_use <= a.last_use
            bytes_meet = a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes
            if alive and bytes_meet and a.ctx == b.ctx and root[a.name] != root[b.name]:
                found.append((a.name, b.name))
    return found


# ---- as data -----------------------------------------------------------------------------------


def test_entries_that_live_together_do_not_overlap():
    for grad_req in ("null", "write", "add", {"fc1_weight": "write"}):
        plan = mlp(64, 10).memory_plan(grad_req=grad_req, data=(16, 20))
        assert not overlapping(plan)
        assert plan.lower_bound_bytes <= plan.arena_bytes <= plan.no_sharing_bytes


def test_planning_works_for_graphs_far_larger_than_memory():
    plan = mlp(64, 10).memory_plan(data=(1 << 40, 784))
    assert plan.arena_bytes > 1 << 45


@pytest.mark.parametrize(("dtype", "size"), [("float16", 2), ("float32", 4), ("float64", 8)])
def test_sizes_of_dtypes_are_honoured(dtype, size):
    net = sym.exp(sym.exp(sym.exp(sym.Variable("x"))))
    plan = net.memory_plan(type_dict={"x": dtype}, grad_req="null", x=(128,))
    # All in place in the output's array.
    assert (plan.arena_bytes, plan.output_bytes) == (0, 128 * size)
    assert {e.bytes for e in plan.entries} == {128 * size}
    plan = sym.sum(net).memory_plan(type_dict={"x": dtype}, grad_req="null", x=(128,))
    assert (plan.arena_bytes, plan.output_bytes) == (128 * size, size)


def test_requests_of_entries():
    entries = {e.name: e for e in mlp(64, 10).memory_plan(data=(4, 6)).entries}
    assert entries["data"].req == "null" and not entries["data"].internal
    assert entries["fc1_output"].req == "write" and entries["fc1_output"].ctx == "cpu(0)"
    assert entries["relu1_output"].req == "inplace"
    assert entries["relu1_output"].inplace_of == "fc1_output"
    added = {e.name: e for e in mlp(64, 10).memory_plan(grad_req="add", data=(4, 6)).entries}
    assert added["fc1_backward_weight"].req == "add"


def used():
    """Bytes in use, once no thread still lets go of what its last operation had."""
    nd.waitall()
    gc.collect()
    before, quiet = -1, 0
    while quiet < 20:
        now = mx._core.memory_usage()[0]
        before, quiet = now, quiet + 1 if now == before else 0
        time.sleep(0.001)
    return before


def taken(size):
    """What the pool takes for an array of this many bytes."""
    before = used()
    array = nd.zeros((size,), dtype="uint8") if size else None
    size = used() - before
    del array
    return size


def allocated_bytes(net, grad_req, **kwargs):
    """The executor after one step, and its bytes beside the arrays it was bound to."""
    before = used()
    exe = net.simple_bind(mx.cpu(), grad_req=grad_req, **kwargs)
    exe.forward(is_train=grad_req != "null")
    if grad_req != "null":
        exe.backward([nd.ones(o.shape) for o in exe.outputs])
    bound = [*exe.arg_arrays, *exe.grad_arrays, *exe.aux_arrays]
    held = used() - before
    return exe, held - sum(taken(a.size * 4) for a in bound if a is not None)


def head_and_tail():
    """A large output, and small work that goes on from it."""
    big = sym.exp(sym.Variable("x"), name="big")
    tail = sym.slice_axis(big, axis=0, begin=0, end=4096)
    for i in range(4):
        tail = sym.tanh(tail * 2, name=f"t{i}")
    return sym.Group([big, sym.sum(tail, name="sum")])


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("grad_req", ["null", "write"])
@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (head_and_tail(), (1 << 18,)),
        (sym.exp(sym.exp(head_and_tail()[0])), (1 << 18,)),
        (chain(8), (1 << 16,)),
        (mlp(64, 10), (1 << 12, 64)),
    ],
    ids=["head and tail", "in place", "chain", "mlp"],
)
def test_what_is_planned_is_what_is_allocated(net, shape, grad_req, limited):
    name = net.list_arguments()[0]
    plan = net.memory_plan(grad_req=grad_req, **{name: shape})
    limit = {"memory_limit": plan.arena_bytes} if limited else {}
    exe, allocated = allocated_bytes(net, grad_req, **{name: shape}, **limit)
    own = exe.memory_plan()
    assert (own.arena_bytes, own.output_bytes) == (plan.arena_bytes, plan.output_bytes)
    assert own.output_bytes == sum(o.size * 4 for o in exe.outputs)
    # Gradients given for outputs are copied into arrays of their own.
    given = sum(taken(e.bytes) for e in own.entries if e.name.startswith("_head_grad"))
    outputs = sum(taken(o.size * 4) for o in exe.outputs)
    assert allocated == taken(own.arena_bytes) + outputs + given
    for e in own.entries:
        assert e.internal == (e.offset is not None)
        assert not (e.internal and e.name in net.list_outputs()), e
        assert not e.internal or e.offset + e.bytes <= own.arena_bytes


@pytest.mark.slow
def test_debug_str_tells_what_is_allocated():
    net = sym.Group(
        [mlp(64, 10), sym.FullyConnected(sym.Variable("x"), num_hidden=512, no_bias=True)]
    )
    shapes = {"data": (1 << 15, 64), "x": (1 << 13, 8)}
    exe, allocated = allocated_bytes(net, "null", **shapes)
    text = exe.debug_str()
    # Programs that measure memory look at the line before the last.
    total = int(re.fullmatch(r"Total (\d+) MB allocated", text.split("\n")[-3])[1])
    outputs = int(re.search(r"Total (\d+) MB of outputs", text)[1])
    plan = net.memory_plan(grad_req="null", **shapes)
    # The second output, written last, holds what the first one is computed from: 8 MB.
    assert (total, outputs) == (17, plan.output_bytes >> 20) == (17, 17)
    assert total == (plan.arena_bytes + plan.output_bytes) >> 20
    own = taken(plan.arena_bytes) + sum(taken(o.size * 4) for o in exe.outputs)
    assert allocated == own
    assert text.endswith(" TempSpace resource requested\n")
    text = mlp(64, 10).simple_bind(mx.cpu(), data=(4, 6)).debug_str()
    assert text.index("Name=fc1\n") < text.index("Name=softmax\n") < text.index("Name=fc1_backward")


def test_debug_str_lists_the_segments(monkeypatch):
    net = mlp(64, 10)
    shapes = {"data": (4, 6)}
    text = net.simple_bind(mx.cpu(), **shapes).debug_str()
    lines = re.findall(r"^segment \[(\d+), (\d+)\)$", text, re.M)
    assert len(lines) == 2, "forward and backward"
    monkeypatch.setenv("MXNET_EXEC_PREFER_BULK_EXEC", "0")
    exe = net.simple_bind(mx.cpu(), **shapes)
    lines = re.findall(r"segment \[(\d+), (\d+)\)", exe.debug_str())
    single = [(int(start), int(end)) for start, end in lines]
    assert all(end == start + 1 for start, end in single)
    assert exe.debug_str().count("Op:") == len(single) and single == sorted(single)


def test_variables_that_share_a_name_share_what_is_given():
    x, again = sym.Variable("x"), sym.Variable("x")
    net = sym.exp(sym.tanh(x)) * sym.tanh(again)
    plan = net.memory_plan(x=(3, 4))
    shapes = [e.shape for e in plan.entries if e.name == "x"]
    assert shapes == [(3, 4), (3, 4)]
    arrays = [mx.nd.ones((3, 4)), mx.nd.ones((3, 4))]
    grads = [mx.nd.zeros((3, 4)), mx.nd.zeros((3, 4))]
    bound = net.bind(mx.cpu(), arrays, grads).memory_plan()
    assert (plan.arena_bytes, plan.output_bytes) == (bound.arena_bytes, bound.output_bytes)
    with pytest.raises(ValueError, match="bogus"):
        net.memory_plan(x=(3, 4), bogus=(1,))


def grouped(groups=("one", "two")):
    with mx.AttrScope(ctx_group=groups[0]):
        x = sym.exp(sym.Variable("x") * 2)
        x = sym.FullyConnected(x, num_hidden=8, name="fc1")
    with mx.AttrScope(ctx_group=groups[1]):
        x = sym.BatchNorm(sym.tanh(x), name="bn")
    return sym.FullyConnected(x, num_hidden=4, name="fc2")


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_graphs_with_groups_are_planned_as_they_are_bound(grad_req):
    groups = {"one": mx.cpu(0), "two": mx.cpu(1)}
    shapes = {"grad_req": grad_req, "group2ctx": groups, "x": (50, 30)}
    net = grouped()
    plan = net.memory_plan(**shapes)
    exe = net.simple_bind(mx.cpu(), **shapes)
    assert plan.entries == exe.memory_plan().entries
    assert {e.ctx for e in plan.entries} == {"cpu(0)", "cpu(1)"}
    assert plan.arena_bytes == exe.memory_plan().arena_bytes
    # Without groups everything is on the current context.
    with mx.cpu(2):
        plan = net.memory_plan(x=(50, 30))
    assert {e.ctx for e in plan.entries} == {"cpu(2)"}
    assert "copy" in net.dump_passes(**shapes)["devices"]


WRONG = {
    "unknown group": ({"group2ctx": {"one": mx.cpu(0)}, "x": (2, 3)}, "not found for group two"),
    "no shapes": ({}, "x: None"),
    "half a shape": ({"x": (2, 0)}, r"x: \(2, -1\)"),
    "shapes disagree": ({"x": (2, 3), "fc1_weight": (8, 5)}, "fc1"),
    "dtypes disagree": (
        {"x": (2, 3), "type_dict": {"x": "float16", "fc1_weight": "float32"}}, "float16",
    ),
    "an unknown name": ({"x": (2, 3), "type_dict": {"x": "float33"}}, "float33"),
    "no requests": ({"grad_req": [], "x": (2, 3)}, "invalid grad_req"),
    "an unknown request": ({"grad_req": "often", "x": (2, 3)}, "often"),
    "a group on no device": ({"group2ctx": {"one": 0, "two": mx.cpu()}, "x": (2, 3)}, "group2ctx"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_the_same_mistake_is_the_same_error_in_a_plan_and_a_binding(what):
    kwargs, words = WRONG[what]
    net = grouped()
    with pytest.raises(Exception, match=words) as planned:
        net.memory_plan(**kwargs)
    with pytest.raises(Exception, match=words) as bound:
        net.simple_bind(mx.cpu(), **kwargs)
    assert type(planned.value) is type(bound.value)
    assert isinstance(bound.value, (MXNetError, TypeError))


def test_names_that_are_double_are_refused_by_simple_bind():
    net = sym.Variable("x") + sym.Variable("x")
    with pytest.raises(MXNetError, match="duplicate argument name 'x'"):
        net.simple_bind(mx.cpu(), x=(2,))


def test_a_variable_of_an_unknown_group_is_an_error():
    net = sym.Variable("x", attr={"ctx_group": "nowhere"}) * 2
    for make in (net.memory_plan, lambda **kwargs: net.simple_bind(mx.cpu(), **kwargs)):
        with pytest.raises(MXNetError, match="not found for group nowhere"):
            make(group2ctx={"here": mx.cpu()}, x=(2,))
        make(x=(2,))


def test_errors_name_the_function_that_was_called():
    for name in ("memory_plan", "dump_passes"):
        with pytest.raises(MXNetError, match=rf"{name}: invalid grad_req \[\]: expected"):
            getattr(mlp(64, 10), name)(grad_req=[], data=(2, 3))


@pytest.mark.slow
def test_a_limit_holds_for_all_devices_together():
    net = sym.Variable("x")
    for i in range(60):
        with mx.AttrScope(ctx_group="one" if i < 30 else "two"):
            net = sym.tanh(net * 1.1, name=f"t{i}")
    net = sym.MakeLoss(net)
    groups = {"one": mx.cpu(0), "two": mx.cpu(1)}
    shapes = {"group2ctx": groups, "x": (1001,)}  # no whole number of lines
    full, found = net.memory_plan(**shapes), []
    limit = full.arena_bytes // 2
    for kwargs in ({}, {"memory_limit": limit}):
        exe, allocated = allocated_bytes(net, "write", **shapes, **kwargs)
        exe.forward(is_train=True, x=np.linspace(-1, 1, 1001))
        exe.backward()
        found.append(exe.grad_dict["x"].asnumpy())
    np.testing.assert_array_equal(*found)
    plan = exe.memory_plan()
    assert plan.arena_bytes <= limit and 0 < plan.recomputed_nodes
    devices = {e.ctx: 0 for e in plan.entries if e.internal}
    for e in plan.entries:
        if e.internal:
            devices[e.ctx] = max(devices[e.ctx], e.offset + -(-e.bytes // 64) * 64)
    assert sum(devices.values()) == plan.arena_bytes
    assert allocated == sum(map(taken, devices.values())) + taken(exe.outputs[0].size * 4)


def test_a_limit_keeps_what_attributes_mark():
    net = sym.Variable("x")
    for i in range(60):
        marks = {"force_mirroring": "True"} if i > 50 and i % 2 else {}
        with mx.AttrScope(**marks):
            net = sym.tanh(net, name=f"t{i}")
    net = sym.MakeLoss(net)
    marked = net.memory_plan(x=(1000,))
    limited = net.memory_plan(memory_limit=marked.arena_bytes // 2, x=(1000,))
    again = [
        {e.name for e in plan.entries if e.name.endswith("_mirror_output")}
        for plan in (marked, limited)
    ]
    assert again[0] == {f"t{i}_mirror_output" for i in (51, 53, 55, 57, 59)}
    assert again[0] < again[1]


# ---- between passes ----------------------------------------------------------------------------


def test_graphs_between_passes_can_be_read():
    x = sym.Variable("x")
    net = sym.exp(x, name="e1") * sym.exp(x, name="e2")
    dumps = net.dump_passes(x=(2,))
    assert list(dumps) == ["composition", "merge_common", "gradient", "devices", "accumulate"]
    assert "e2" in dumps["composition"] and "e2" not in dumps["merge_common"]
    assert "-- backward --" in dumps["gradient"] and "-- backward" not in dumps["merge_common"]
    assert "backward" not in net.dump_passes(grad_req="null", x=(2,))["gradient"]


def test_copies_between_devices_are_seen_after_their_pass():
    with mx.AttrScope(ctx_group="one"):
        x = sym.Variable("x") * 2
    with mx.AttrScope(ctx_group="two"):
        net = (x + 1) * (x + 2)
    groups = {"one": mx.cpu(0), "two": mx.cpu(1)}
    exe = net.simple_bind(mx.cpu(), group2ctx=groups, x=(3,))
    copies = [e for e in exe.memory_plan().entries if "_copy" in e.name]
    # One copy forward for both readers, one of the gradient back.
    assert [e.ctx for e in copies] == ["cpu(1)", "cpu(0)"]
    assert exe.forward(x=nd.ones((3,)))[0].asnumpy().tolist() == [12, 12, 12]


# ---- recomputation -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["__force_mirroring__", "force_mirroring"])
def test_marked_nodes_are_computed_again(key):
    plain, marked = chain(20), chain(20, **{key: "True"})
    less, full = marked.memory_plan(x=(500,)), plain.memory_plan(x=(500,))
    assert less.recomputed_nodes == 16 and full.recomputed_nodes == 0
    assert less.arena_bytes < full.arena_bytes
    found = []
    for net in (plain, marked):
        exe = net.simple_bind(mx.cpu(), x=(500,))
        exe.forward(is_train=True, x=np.linspace(-1, 1, 500))
        exe.backward()
        found.append(exe.grad_dict["x"].asnumpy())
    np.testing.assert_array_equal(*found)


def test_mirroring_by_environment_keeps_one_node_of_every_step(monkeypatch):
    net = sym.Variable("x")
    for _ in range(60):
        net = sym.Activation(net, act_type="tanh")
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    again = {}
    for step in (1, 5, 10, 1000):
        monkeypatch.setenv("MXNET_BACKWARD_MIRROR_STEP", str(step))
        again[step] = net.memory_plan(x=(100,)).recomputed_nodes
    # The last node's output is the head; it is kept anyway where its place in the count says so.
    assert again[1] == 0 and again[5] == 48 and again[10] == 54 and again[1000] == 60
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "0")
    assert net.memory_plan(x=(100,)).recomputed_nodes == 0


def test_mirrored_plans_take_less_where_chains_are_long(monkeypatch):
    net = chain(100)
    full = net.memory_plan(x=(1000,)).arena_bytes
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    monkeypatch.setenv("MXNET_BACKWARD_MIRROR_STEP", "10")
    assert net.memory_plan(x=(1000,)).arena_bytes < full / 3


def test_convolutions_and_random_numbers_are_not_mirrored(monkeypatch):
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    net = sym.Convolution(sym.Variable("x"), kernel=(3, 3), num_filter=2, name="conv")
    net = sym.Dropout(sym.Activation(net, act_type="relu", name="act"), name="drop")
    graph = sym.MakeLoss(sym.square(net)).graph()
    _, _, _, mirror = graph.make_backward_pass()
    assert {graph.nodes[n].name for n in mirror} <= {"act", "square0"}


def test_a_limit_is_never_exceeded_and_says_the_least():
    net = chain(60)
    full = net.memory_plan(x=(1000,))
    assert net.memory_plan(memory_limit=full.arena_bytes, x=(1000,)).recomputed_nodes == 0
    with pytest.raises(MXNetError, match="the least") as caught:
        net.memory_plan(memory_limit="1kB", x=(1000,))
    least = int(str(caught.value).rsplit(" is ", 1)[1].split()[0])
    for limit in (least, (least + full.arena_bytes) // 2):
        plan = net.memory_plan(memory_limit=limit, x=(1000,))
        assert plan.arena_bytes <= limit and 0 < plan.recomputed_nodes <= 60
        assert not overlapping(plan)


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("-3", ValueError),
        ("2 XB", ValueError),
        (-1, ValueError),
        (1.5, TypeError),
        (True, TypeError),
    ],
)
def test_bad_limits(limit, error):
    with pytest.raises(error, match="memory_limit"):
        mlp(64, 10).memory_plan(memory_limit=limit, data=(2, 3))


# ---- switches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "switch",
    [
        {},
        {"MXNET_EXEC_ENABLE_INPLACE": "0"},
        {"MXNET_EXEC_PREFER_BULK_EXEC": "0"},
        {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "2"},
        {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD": "3"},
        {"MXNET_EXEC_BULK_EXEC_INFERENCE": "0", "MXNET_EXEC_BULK_EXEC_TRAIN": "0"},
        {"MXNET_ELIMINATE_COMMON_EXPR": "0"},
        {"MXNET_EXEC_INPLACE_GRAD_SUM_CAP": "2"},
        {"MXNET_BACKWARD_DO_MIRROR": "1"},
    ],
    ids=lambda s: ",".join(s) or "none",
)
def test_switches_do_not_change_results(switch, monkeypatch):
    x = sym.Variable("x")
    net = sym.Activation(x * 2, act_type="tanh")
    for _ in range(4):
        net = sym.exp(net * 0.5) + net * sym.exp(x)
    net = sym.Group([net, sym.BlockGrad(net * 2)])
    data, head = np.linspace(-1, 1, 12).reshape(3, 4), nd.ones((3, 4))

    def run():
        exe = net.simple_bind(mx.cpu(), x=(3, 4))
        for _ in range(3):
            outputs = exe.forward(is_train=True, x=data)
            exe.backward([head, None])
        return [a.asnumpy() for a in (*outputs, exe.grad_dict["x"])]

    expected = run()
    for key, value in switch.items():
        monkeypatch.setenv(key, value)
    for got, want in zip(run(), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
