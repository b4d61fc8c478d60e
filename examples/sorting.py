"""Sorts short sequences of digits with a bidirectional LSTM: one class for each position.

python examples/sorting.py
"""

import numpy as np

import rsnet as mx


def network(length, digits, hidden):
    """Scores of every digit for each position, from the sequence read in both directions."""
    data = mx.sym.Variable("data")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    embedded = mx.sym.Embedding(data, input_dim=digits, output_dim=hidden, name="embedding")
    cell = mx.rnn.BidirectionalCell(
        mx.rnn.LSTMCell(hidden, prefix="forward_"), mx.rnn.LSTMCell(hidden, prefix="backward_")
    )
    outputs, _ = cell.unroll(length, embedded, layout="NTC", merge_outputs=True)
    scores = mx.sym.FullyConnected(
        mx.sym.Reshape(outputs, shape=(-1, 2 * hidden)), num_hidden=digits, name="scores"
    )
    return mx.sym.SoftmaxOutput(scores, label, name="softmax")


def batches(rows, length, digits, batch_size, seed):
    """Random sequences, labelled with the same digits in order."""
    x = np.random.RandomState(seed).randint(0, digits, (rows, length))
    return mx.io.NDArrayIter(x, np.sort(x, axis=1), batch_size, shuffle=True)


def train(length=5, digits=10, hidden=64, rows=8000, num_epoch=6, batch_size=50):
    """Trains, and returns the share of digits of unseen sequences that are in their place."""
    module = mx.mod.Module(network(length, digits, hidden))
    module.fit(
        batches(rows, length, digits, batch_size, seed=1),
        num_epoch=num_epoch,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
        initializer=mx.init.Xavier(),
        eval_metric=mx.metric.np(accuracy),
    )
    unseen = batches(rows // 10, length, digits, batch_size, seed=2)
    return module.score(unseen, mx.metric.np(accuracy))[0][1]


def accuracy(label, pred):
    """Share of the positions whose digit is right."""
    return float((pred.argmax(axis=1) == label.ravel()).mean())


if __name__ == "__main__":
    print(f"{100 * train():.1f} % of the digits are in their place")
