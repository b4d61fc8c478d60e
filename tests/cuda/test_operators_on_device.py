"""Every operator on arrays of a device gives the host's results, imperatively and in executors."""

import warnings

import all_cases  # noqa: F401
import numpy as np
import pytest
from cases import CASES
from conftest import assert_near
from operators import EXISTING, RANDOM, function, head_gradients, host, place, run_executor

import rsnet as mx
from rsnet import nd

TABLE = [c for op, cases in CASES.items() if op in EXISTING for c in cases if c.dtypes]


def ids(value):
    return getattr(value, "id", value)


def outputs(case, arrays, ctx):
    """Outputs and states of a call on a device."""
    with ctx, mx.autograd.train_mode():
        mx.random.seed(5)
        inputs = [place(a) for a in arrays]
        out = function(nd, case.op)(*inputs, **case.params)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        assert all(o.context == ctx for o in outs)
        return [host(o) for o in outs + [inputs[i] for i in case.mutates]]


def check_results(case, dtype, gpu):
    arrays = case.arrays(dtype)
    expected = outputs(case, arrays, mx.cpu())
    for got, want in zip(outputs(case, arrays, gpu), expected, strict=True):
        assert_near(got, want)


@pytest.mark.parametrize("case", TABLE, ids=ids)
def test_results_are_those_of_the_host(case, gpu):
    check_results(case, "float32" if "float32" in case.dtypes else case.dtypes[0], gpu)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "dtype"),
    [(c, d) for c in TABLE for d in c.dtypes if d != "float32" and "float32" in c.dtypes],
    ids=ids,
)
def test_results_of_other_dtypes_are_those_of_the_host(case, dtype, gpu):
    check_results(case, dtype, gpu)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["1", "7"])
@pytest.mark.parametrize("case", TABLE, ids=ids)
def test_results_do_not_depend_on_the_order_of_threads(case, order, gpu, monkeypatch):
    """A missing barrier shows when the threads of a block run in another order."""
    monkeypatch.setenv("RSNET_EMULATED_ORDER", order)
    check_results(case, "float32" if "float32" in case.dtypes else case.dtypes[0], gpu)


#: Operators whose families have kernels: no case of them, nor a gradient, runs on the host.
ON_DEVICE = """
    Activation BatchNorm BilinearSampler CTCLoss Convolution Crop Deconvolution Dropout Embedding
    FullyConnected GridGenerator GroupNorm InstanceNorm L2Normalization LRN LayerNorm LeakyReLU Pad
    Pooling RNN ROIPooling SequenceLast SequenceMask SequenceReverse SoftmaxActivation
    SoftmaxOutput SpatialTransformer _contrib_MultiBoxDetection _contrib_MultiBoxPrior
    _contrib_MultiBoxTarget _contrib_ROIAlign _contrib_RROIAlign _contrib_arange_like
    _contrib_box_decode _contrib_box_encode _contrib_box_iou _contrib_box_nms
    _contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt
    _contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt
    _linalg_det _linalg_extractdiag _linalg_extracttrian _linalg_gelqf _linalg_inverse
    _linalg_makediag _linalg_maketrian _linalg_potrf _linalg_potri _linalg_slogdet
    _linalg_sumlogdiag _linalg_syevd _linalg_syrk _linalg_trmm _linalg_trsm
    _np_copy _np_max _np_moveaxis _np_reshape _np_squeeze _np_sum _np_transpose
    _slice_assign _split_v2 add_n argmax argmin argsort batch_dot batch_take broadcast_add
    broadcast_like broadcast_to clip concat cumsum dot expand_dims flip gather_nd hard_sigmoid
    log_softmax max mean min norm one_hot pick prod relu repeat reverse scatter_nd slice slice_axis
    slice_like softmin sort softmax split square squeeze stack sum swapaxes take tile topk transpose
    where zeros_like
""".split()


@pytest.mark.parametrize("case", [c for c in TABLE if c.op in ON_DEVICE], ids=ids)
def test_families_with_kernels_do_not_run_on_the_host(case, gpu):
    if "float32" not in case.dtypes:
        pytest.skip("no case in float32")
    before = mx.cuda.operators_on_host()
    arrays = case.arrays("float32")
    outputs(case, arrays, gpu)
    if case.grad != "none" and all(a.size for a in arrays):
        heads = head_gradients(case, arrays)
        with gpu:
            run_executor(case, arrays, heads, "write")
    assert mx.cuda.operators_on_host() == before


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("op", sorted({c.op for c in TABLE if c.grad != "none"}))
def test_gradients_are_those_of_the_host(op, req, gpu):
    case = next(c for c in TABLE if c.op == op and c.grad != "none")
    if "float32" not in case.dtypes or not all(a.size for a in case.arrays("float32")):
        pytest.skip("no case in float32")
    arrays = case.arrays("float32")
    heads = head_gradients(case, arrays)
    expected, _ = run_executor(case, arrays, heads, req)
    with gpu:
        got, _ = run_executor(case, arrays, heads, req)
    for i, want in expected.items():
        assert got[i].context == gpu
        assert_near(host(got[i]), host(want))


@pytest.mark.parametrize("op", sorted(RANDOM))
def test_random_numbers_are_those_of_the_host(op, gpu):
    params, _, _ = RANDOM[op]
    drawn = []
    for ctx in (mx.cpu(0), gpu):
        mx.random.seed(11)
        drawn.append(function(nd, op)(shape=(50,), ctx=ctx, **params))
    assert drawn[1].context == gpu
    assert_near(drawn[1].asnumpy(), drawn[0].asnumpy())


def test_an_output_decides_on_the_device_of_a_call_without_inputs(gpu):
    x = nd.zeros((20,), ctx=gpu)
    mx.random.seed(2)
    nd.random.uniform(shape=(20,), out=x)
    mx.random.seed(2)
    assert_near(x.asnumpy(), nd.random.uniform(shape=(20,)).asnumpy())


def test_outputs_that_overlap_inputs(gpu):
    for ctx in (mx.cpu(), gpu):
        x = nd.arange(12, ctx=ctx)
        nd.square(x[0:8], out=x[4:12])  # neither the same nor apart
        expected = np.arange(12.0)
        expected[4:12] = np.arange(8.0) ** 2
        np.testing.assert_array_equal(x.asnumpy(), expected)
        nd.exp(x[:4], out=x[:4])
        np.testing.assert_allclose(x[:4].asnumpy(), np.exp(np.arange(4.0)), rtol=1e-6)


def test_an_operator_on_the_host_is_warned_of_once_and_listed(gpu):
    x = nd.array([[[4.0, 1.0], [1.0, 3.0]]], ctx=gpu)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            nd.contrib.bipartite_matching(x, threshold=0.1)
    texts = [str(w.message) for w in seen if "no CUDA kernel" in str(w.message)]
    name = "_contrib_bipartite_matching"
    assert len([t for t in texts if name in t]) <= 1
    assert name in mx.cuda.operators_on_host()


def test_autograd_on_a_device(gpu):
    values = np.random.normal(size=(6, 5)).astype("float32")
    grads = []
    for ctx in (mx.cpu(), gpu):
        x = nd.array(values, ctx=ctx)
        w = nd.array(values.T, ctx=ctx)
        x.attach_grad()
        w.attach_grad("add")
        for _ in range(3):
            with mx.autograd.record():
                loss = (nd.dot(x, w).tanh() * 0.5 + nd.sum(x)).sum()
            loss.backward()
        assert x.grad.context == ctx
        grads.append((x.grad.asnumpy(), w.grad.asnumpy()))
    for got, want in zip(*grads, strict=True):
        assert_near(got, want)
