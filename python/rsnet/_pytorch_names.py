"""Names of PyTorch that rsnet has under others, for messages about those that are missing.

`docs/from_pytorch.md` has the same table. A value is code, several alternatives being joined by
" or ", or begins with "not needed". `x` is an array, `net` a block, `trainer` a `gluon.Trainer`.
"""

from __future__ import annotations

_FLOATS = {"float": "float32", "double": "float64", "half": "float16"}
_INTEGERS = {"long": "int64", "int": "int32", "bool": "bool"}

#: By the place where a program looks: name, and what to write instead.
HINTS: dict[str, dict[str, str]] = {
    "NDArray": {
        **{name: f"x.astype('{t}')" for name, t in (_FLOATS | _INTEGERS).items()},
        "chunk": "x.split(num_outputs=2)",
        "clone": "x.copy()",
        "cpu": "x.as_in_context(mx.cpu())",
        "cuda": "x.as_in_context(mx.gpu())",
        "device": "x.context",
        "dim": "x.ndim",
        "expand": "x.broadcast_to((2, 2))",
        "fill_": "x[:] = 1",
        "masked_fill": "nd.where(x > 1, nd.zeros_like(x), x)",
        "matmul": "nd.dot(x, x) or nd.batch_dot(x.expand_dims(0), x.expand_dims(0))",
        "mm": "nd.dot(x, x)",
        "numel": "x.size",
        "numpy": "x.asnumpy()",
        "permute": "x.transpose((1, 0))",
        "requires_grad": "x.attach_grad()",
        "requires_grad_": "x.attach_grad()",
        "scatter_": "nd.scatter_nd(data, indices, shape=(2, 2))",
        "std": "nd.moments(x, axes=(0, 1))[1].sqrt()",
        "t": "x.T",
        "to": "x.as_in_context(mx.cpu()) or x.astype('float64')",
        "tolist": "x.asnumpy().tolist()",
        "type": "x.astype('float64')",
        "unsqueeze": "x.expand_dims(axis=0)",
        "var": "nd.moments(x, axes=(0, 1))[1]",
        "view": "x.reshape((-1, 2))",
        "zero_": "x[:] = 0",
    },
    "nd": {
        "as_tensor": "nd.array([1.0])",
        "bmm": "nd.batch_dot(x.expand_dims(0), x.expand_dims(0))",
        "cat": "nd.concat(x, x, dim=0)",
        "cross_entropy": "gluon.loss.SoftmaxCrossEntropyLoss()",
        "manual_seed": "mx.random.seed(1)",
        "masked_fill": "nd.where(x > 1, nd.zeros_like(x), x)",
        "matmul": "nd.dot(x, x) or nd.batch_dot(x.expand_dims(0), x.expand_dims(0))",
        "mm": "nd.dot(x, x)",
        "permute": "nd.transpose(x, axes=(1, 0))",
        "rand": "nd.random.uniform(shape=(2, 2))",
        "randn": "nd.random.randn(2, 2)",
        "tensor": "nd.array([1.0])",
        "unsqueeze": "nd.expand_dims(x, axis=0)",
    },
    "autograd": {
        "enable_grad": "autograd.record()",
        "no_grad": "autograd.pause()",
        "set_grad_enabled": "autograd.set_recording(False)",
    },
    "mx": {
        "Tensor": "nd.NDArray",
        "cat": "nd.concat(x, x, dim=0)",
        "device": "mx.Context('cpu(0)')",
        "from_numpy": "nd.array(x.asnumpy())",
        "load": "nd.load(file)",
        "manual_seed": "mx.random.seed(1)",
        "nn": "gluon.nn",
        "no_grad": "autograd.pause()",
        "ones": "nd.ones((2, 2))",
        "optim": "mx.optimizer",
        "save": "nd.save(file, [x])",
        "stack": "nd.stack(x, x)",
        "tensor": "nd.array([1.0])",
        "utils": "gluon.data",
        "zeros": "nd.zeros((2, 2))",
    },
    "gluon.nn": {
        "AdaptiveAvgPool2d": "nn.GlobalAvgPool2D()",
        "AvgPool2d": "nn.AvgPool2D(pool_size=2)",
        "BCEWithLogitsLoss": "gluon.loss.SigmoidBinaryCrossEntropyLoss()",
        "BatchNorm1d": "nn.BatchNorm()",
        "BatchNorm2d": "nn.BatchNorm()",
        "Conv1d": "nn.Conv1D(channels=8, kernel_size=3, in_channels=3)",
        "Conv2d": "nn.Conv2D(channels=8, kernel_size=3, in_channels=3)",
        "Conv3d": "nn.Conv3D(channels=8, kernel_size=3, in_channels=3)",
        "CrossEntropyLoss": "gluon.loss.SoftmaxCrossEntropyLoss()",
        "GRU": "gluon.rnn.GRU(hidden_size=8)",
        "L1Loss": "gluon.loss.L1Loss()",
        "LSTM": "gluon.rnn.LSTM(hidden_size=8)",
        "Linear": "nn.Dense(units=8, in_units=3)",
        "MSELoss": "gluon.loss.L2Loss()",
        "MaxPool2d": "nn.MaxPool2D(pool_size=2)",
        "Module": "gluon.Block or gluon.HybridBlock",
        "ModuleList": "nn.HybridSequential()",
        "Parameter": "gluon.Parameter('weight', shape=(2, 2))",
        "RNN": "gluon.rnn.RNN(hidden_size=8)",
        "ReLU": "nn.Activation('relu')",
        "Sigmoid": "nn.Activation('sigmoid')",
        "Softmax": "nn.HybridLambda('softmax')",
        "Tanh": "nn.Activation('tanh')",
        "functional": "nd",
    },
    "Block": {
        "add_module": "net.register_child(nn.Dense(2), 'head')",
        "cpu": "net.reset_ctx(mx.cpu())",
        "cuda": "net.reset_ctx(mx.gpu())",
        "eval": "not needed: outside of autograd.record() layers behave as in evaluation",
        "half": "net.cast('float16')",
        "load_state_dict": "net.load_parameters(file)",
        "named_parameters": "net.collect_params().items()",
        "parameters": "net.collect_params()",
        "requires_grad_": "net.collect_params().setattr('grad_req', 'null')",
        "state_dict": "net.collect_params() or net.save_parameters(file)",
        "to": "net.reset_ctx(mx.cpu()) or net.cast('float64')",
        "train": "not needed: within autograd.record() layers behave as in training",
    },
    "Trainer": {
        "load_state_dict": "trainer.load_states(file)",
        "param_groups": "trainer.set_learning_rate(0.1)",
        "state_dict": "trainer.save_states(file)",
        "zero_grad": "not needed: backward overwrites the gradients of before",
    },
}


def hint(place: str, name: str) -> str:
    """The end of a message about a missing name; "" if PyTorch has none of it, either."""
    found = HINTS.get(place, {}).get(name)
    if found is None:
        return ""
    instead = found if found.startswith("not needed") else f"here {found}"
    return f"; PyTorch's {name} is {instead} (docs/from_pytorch.md)"
