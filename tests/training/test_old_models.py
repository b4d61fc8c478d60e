"""Trained models of MXNet users: same outputs, and the same gradients of one training step.

The models are not part of the repository; the variable RSNET_MODELS names the folder that holds
them.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import rsnet as mx

ROOT = Path(os.environ.get("RSNET_MODELS", "models"))
MODELS = sorted(p.parent for p in ROOT.glob("*/meta.json"))

pytestmark = pytest.mark.skipif(not MODELS, reason="set RSNET_MODELS to the folder of models")


def load(folder):
    """Symbol, arguments and auxiliary states of a model."""
    meta = json.loads((folder / "meta.json").read_text())
    net = mx.sym.load(str(folder / meta["symbol_file"]))
    arrays = mx.nd.load(str(folder / meta["params_file"]))
    args = {k[4:]: v for k, v in arrays.items() if k.startswith("arg:")}
    aux = {k[4:]: v for k, v in arrays.items() if k.startswith("aux:")}
    return net, args, aux


def register_stand_ins():
    """The Custom operator that one model names: passes two inputs through, zeros for two masks."""
    if not hasattr(mx.operator, "CustomOp"):
        pytest.skip("CustomOp is missing")

    class Mask(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            batch = in_data[0].shape[:1]
            for i, value in enumerate(
                [in_data[0], mx.nd.zeros(batch), in_data[2], mx.nd.zeros(batch)]
            ):
                self.assign(out_data[i], req[i], value)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            raise NotImplementedError

    @mx.operator.register("negativemining")
    class MaskProp(mx.operator.CustomOpProp):
        def __init__(self, **kwargs):
            super().__init__(need_top_grad=False)

        def list_arguments(self):
            return ["cls_prob", "label", "bbox_pred", "bbox_target"]

        def list_outputs(self):
            return ["cls_out", "cls_keep", "bbox_out", "bbox_keep"]

        def infer_shape(self, in_shape):
            batch = (in_shape[0][0],)
            return in_shape, [in_shape[0], batch, in_shape[2], batch], []

        def create_operator(self, ctx, shapes, dtypes):
            return Mask()


def bind(net, args, aux, inputs, grad_req="null"):
    exe = net.simple_bind(mx.cpu(), grad_req=grad_req, **{k: v.shape for k, v in inputs.items()})
    exe.copy_params_from(args, aux, allow_extra_params=True)
    for name, value in inputs.items():
        exe.arg_dict[name][:] = value
    return exe


def assert_near(name, got, expected, relative):
    limit = relative * max(np.abs(expected).max(), 1e-30)
    worst = np.abs(got.astype("float64") - expected).max() if expected.size else 0.0
    assert got.shape == expected.shape, name
    assert worst <= limit, f"{name}: off by {worst:.3g}, allowed {limit:.3g}"


@pytest.mark.parametrize("folder", MODELS, ids=lambda p: p.name)
def test_outputs_match_mxnet(folder):
    if (
        "negativemining"
        in (folder / json.loads((folder / "meta.json").read_text())["symbol_file"]).read_text()
    ):
        register_stand_ins()
    net, args, aux = load(folder)
    expected = np.load(folder / "expected.npz")
    for kind in sorted({k.split(".")[0] for k in expected.files}):
        inputs = {
            k.split(".in.", 1)[1]: expected[k]
            for k in expected.files
            if k.startswith(f"{kind}.in.")
        }
        known = set(net.list_arguments())
        exe = bind(net, args, aux, {k: v for k, v in inputs.items() if k in known})
        outputs = exe.forward(is_train=False)
        for i, output in enumerate(outputs):
            assert_near(f"{kind} output {i}", output.asnumpy(), expected[f"{kind}.out.{i}"], 1e-5)


@pytest.mark.parametrize(
    "folder", [p for p in MODELS if (p / "train_ref.npz").exists()], ids=lambda p: p.name
)
def test_training_step_matches_mxnet(folder):
    net, args, aux = load(folder)
    ref = np.load(folder / "train_ref.npz")

    def part(prefix):
        return {k[len(prefix) :]: ref[k] for k in ref.files if k.startswith(prefix)}

    exe = bind(net, args, aux, part("in."), grad_req="write")
    outputs = exe.forward(is_train=True)
    for i, value in part("out.").items():
        assert_near(f"output {i}", outputs[int(i)].asnumpy(), value, 1e-4)
    heads = part("head_grad.")
    exe.backward([mx.nd.array(heads[str(i)]) for i in range(len(heads))])
    for name, value in part("grad.").items():
        assert_near(f"gradient of {name}", exe.grad_dict[name].asnumpy(), value, 1e-4)
    for name, value in part("aux_after.").items():
        assert_near(f"state {name}", exe.aux_dict[name].asnumpy(), value, 1e-4)
