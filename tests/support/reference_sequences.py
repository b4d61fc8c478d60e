"""The NumPy oracle of sequences, tables and regions."""

import numpy as np
from reference import REFERENCES, reference
from reference_nn import softmax_of


@reference("Embedding")
def embedding(x, weight, input_dim=None, output_dim=None, dtype="float32", sparse_grad=False):
    return weight[np.clip(x.astype("int64"), 0, len(weight) - 1)]


def steps_before(x, length, axis):
    """Mask of the time steps before each sequence's length; the other axis is the batch."""
    at = np.arange(x.shape[axis])
    mask = at[:, None] < length[None, :] if axis == 0 else at[None, :] < length[:, None]
    return mask.reshape(*mask.shape, *[1] * (x.ndim - 2))


@reference("SequenceMask")
def sequence_mask(x, length=None, use_sequence_length=False, value=0.0, axis=0):
    return np.where(steps_before(x, length, axis), x, value) if use_sequence_length else x


@reference("SequenceLast")
def sequence_last(x, length=None, use_sequence_length=False, axis=0):
    x = np.moveaxis(x, axis, 0)
    if not use_sequence_length:
        return x[-1]
    return x[length.astype("int64") - 1, np.arange(x.shape[1])]


@reference("SequenceReverse")
def sequence_reverse(x, length=None, use_sequence_length=False, axis=0):
    if not use_sequence_length:
        return x[::-1]
    y = x.copy()
    for b, n in enumerate(length.astype("int64")):
        y[:n, b] = x[:n, b][::-1]
    return y


def lstm_step(gates, h, c, w_h, b_h):
    i, f, g, o = np.split(gates + h @ w_h.T + b_h, 4, 1)
    sigmoid = REFERENCES["sigmoid"]
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(gates, h, c, w_h, b_h):
    sigmoid = REFERENCES["sigmoid"]
    r_x, z_x, n_x = np.split(gates, 3, 1)
    r_h, z_h, n_h = np.split(h @ w_h.T + b_h, 3, 1)
    r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
    return (1 - z) * np.tanh(n_x + r * n_h) + z * h, c


RNN_STEPS = {
    "lstm": (4, lstm_step),
    "gru": (3, gru_step),
    "rnn_tanh": (1, lambda g, h, c, w, b: (np.tanh(g + h @ w.T + b), c)),
    "rnn_relu": (1, lambda g, h, c, w, b: (np.maximum(g + h @ w.T + b, 0), c)),
}


@reference("RNN")
def rnn(
    x, parameters, state, state_cell=None, state_size=None, num_layers=1, bidirectional=False,
    mode="lstm", p=0.0, state_outputs=False, **_,
):  # fmt: skip
    gates, step = RNN_STEPS[mode]
    directions = 2 if bidirectional else 1
    rows, at, weights = gates * state_size, 0, []
    for layer in range(num_layers):
        width = x.shape[2] if layer == 0 else directions * state_size
        for _direction in range(directions):
            w_x = parameters[at : at + rows * width].reshape(rows, width)
            at += rows * width
            w_h = parameters[at : at + rows * state_size].reshape(rows, state_size)
            at += rows * state_size
            weights.append((w_x, w_h))
    biases = parameters[at:].reshape(-1, 2, rows)
    last_h, last_c = [], []
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            k = layer * directions + direction
            (w_x, w_h), (b_x, b_h) = weights[k], biases[k]
            h, c = state[k], None if state_cell is None else state_cell[k]
            seq, hs = x[::-1] if direction else x, []
            for row in seq:
                h, c = step(row @ w_x.T + b_x, h, c, w_h, b_h)
                hs.append(h)
            last_h.append(h)
            last_c.append(c)
            outs.append(np.stack(hs)[::-1] if direction else np.stack(hs))
        x = np.concatenate(outs, 2)
    if not state_outputs:
        return x
    return (x, np.stack(last_h)) + ((np.stack(last_c),) if mode == "lstm" else ())


@reference("CTCLoss")
def ctc_loss(x, label, blank_label="first", **_):
    """The forward recursion of Graves et al. (2006) over the label with blanks between."""
    p = softmax_of(x)
    steps, batch, classes = x.shape
    blank, padding = (0, 0) if blank_label == "first" else (classes - 1, -1)
    losses = []
    for b in range(batch):
        labels = [int(v) for v in label[b] if v != padding]
        path = [blank]
        for v in labels:
            path += [v, blank]
        alpha = np.zeros(len(path))
        alpha[:2] = p[0, b, path[:2]]
        for t in range(1, steps):
            new = alpha.copy()
            new[1:] += alpha[:-1]
            for s in range(2, len(path)):
                if path[s] != blank and path[s] != path[s - 2]:
                    new[s] += alpha[s - 2]
            alpha = new * p[t, b, path]
        losses.append(-np.log(alpha[-2:].sum()))
    return np.array(losses)


@reference("ROIPooling")
def roi_pooling(x, rois, pooled_size, spatial_scale):
    bins_h, bins_w = pooled_size
    y = np.zeros((len(rois), x.shape[1], bins_h, bins_w))
    for r, roi in enumerate(rois):
        left, top, right, bottom = (round(v * spatial_scale) for v in roi[1:])
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i, j in np.ndindex(bins_h, bins_w):
            rows = slice(
                np.clip(top + i * height // bins_h, 0, x.shape[2]),
                np.clip(top - (-(i + 1) * height // bins_h), 0, x.shape[2]),
            )
            cols = slice(
                np.clip(left + j * width // bins_w, 0, x.shape[3]),
                np.clip(left - (-(j + 1) * width // bins_w), 0, x.shape[3]),
            )
            part = x[int(roi[0]), :, rows, cols]
            y[r, :, i, j] = part.max((1, 2)) if part.size else 0
    return y
