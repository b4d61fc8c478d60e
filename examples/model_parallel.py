"""A stack of LSTM layers, each on a device of its own: the layers of different steps overlap.

python examples/model_parallel.py
"""

import numpy as np

import rsnet as mx


def network(length, layers, hidden):
    """Predicts the next value of a series; layer i is in the group `layer<i>`."""
    steps = mx.sym.SliceChannel(
        mx.sym.Variable("data"), num_outputs=length, axis=1, squeeze_axis=True
    )
    outputs = [mx.sym.expand_dims(step, axis=1) for step in steps]
    for i in range(layers):
        with mx.AttrScope(ctx_group=f"layer{i}"):
            outputs, _ = mx.rnn.LSTMCell(hidden, prefix=f"lstm{i}_").unroll(length, outputs)
    with mx.AttrScope(ctx_group=f"layer{layers - 1}"):
        last = mx.sym.FullyConnected(outputs[-1], num_hidden=1, name="value")
        return mx.sym.LinearRegressionOutput(last, name="next")


def train(length=12, layers=3, hidden=16, rows=640, num_epoch=8, batch_size=32):
    """Trains on sine waves; returns the error of the first and of the last epoch."""
    random = np.random.RandomState(0)
    time = np.arange(length + 1) * random.uniform(0.2, 0.6, (rows, 1))
    waves = np.sin(time + random.uniform(0, 6, (rows, 1)))
    batches = mx.io.NDArrayIter(waves[:, :-1], {"next_label": waves[:, -1:]}, batch_size)
    groups = {f"layer{i}": mx.cpu(i) for i in range(layers)}
    module = mx.mod.Module(
        network(length, layers, hidden), label_names=("next_label",), group2ctxs=groups
    )
    errors = []
    module.fit(
        batches,
        num_epoch=num_epoch,
        eval_metric="rmse",
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
        initializer=mx.init.Xavier(),
        batch_end_callback=lambda param: errors.append(param.eval_metric.get()[1]),
    )
    per_epoch = rows // batch_size
    return errors[per_epoch - 1], errors[-1]


if __name__ == "__main__":
    first, last = train()
    print(f"error of the prediction: {first:.3f}, then {last:.3f}")
