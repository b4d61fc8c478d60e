"""The NumPy oracle of shapes and places."""

import numpy as np
from reference import REFERENCES, kept, reference


def split_code(n, first, second):
    """The two extents of reshape code -4; one of them may be -1."""
    if first == -1:
        first = n // second
    return [first, n // first if second == -1 else second]


@reference("Reshape")
def reshape(x, shape=(), reverse=False, **_):
    if reverse:
        mirrored = np.empty(x.shape[::-1])
        return x.reshape(reshape(mirrored, tuple(shape)[::-1]).shape[::-1])
    out, at, codes = [], 0, list(shape)
    while codes:
        code = codes.pop(0)
        if code == 0:
            out.append(x.shape[at])
            at += 1
        elif code == -2:
            out += x.shape[at:]
            at = x.ndim
        elif code == -3:
            out.append(x.shape[at] * x.shape[at + 1])
            at += 2
        elif code == -4:
            out += split_code(x.shape[at], codes.pop(0), codes.pop(0))
            at += 1
        else:
            out.append(code)
            at += 1
    return x.reshape(out)


REFERENCES.update(
    {
        "Flatten": lambda x: x.reshape(len(x), int(np.prod(x.shape[1:]))),
        "expand_dims": lambda x, axis: np.expand_dims(x, axis),
        "squeeze": lambda x, axis=None: kept(np.squeeze(x, axis)),
        "transpose": lambda x, axes=None: np.transpose(x, axes or None),
        "SwapAxis": lambda x, dim1=0, dim2=0: np.swapaxes(x, dim1, dim2),
        "Concat": lambda *xs, dim=1, num_args=None: np.concatenate(xs, dim),
        "_rnn_param_concat": lambda *xs, dim=1, num_args=None: np.concatenate(xs, dim),
        "stack": lambda *xs, axis=0, num_args=None: np.stack(xs, axis),
        "tile": lambda x, reps: np.tile(x, reps),
        "repeat": lambda x, repeats, axis=None: np.repeat(x, repeats, axis),
        "reverse": lambda x, axis: np.flip(x, axis),
        "reshape_like": lambda a, b, **_: a.reshape(b.shape),
        "slice_like": lambda a, b, axes=(): a[
            tuple(
                slice(b.shape[i]) if not axes or i in [j % a.ndim for j in axes] else slice(None)
                for i in range(a.ndim)
            )
        ],
        "broadcast_to": lambda x, shape: np.broadcast_to(
            x, [n or m for n, m in zip(shape, x.shape, strict=True)]
        ),
        "broadcast_like": lambda a, b, **_: np.broadcast_to(a, b.shape),
        "_sum_like": lambda a, b: np.sum(
            a.reshape((-1, *a.shape[a.ndim - b.ndim :])).sum(0),
            axis=tuple(i for i, n in enumerate(b.shape) if n == 1),
            keepdims=True,
        ),
    }
)


@reference("broadcast_axis")
def broadcast_axis(x, axis=(), size=()):
    shape = list(x.shape)
    for a, n in zip(np.atleast_1d(axis), np.atleast_1d(size), strict=True):
        shape[a] = n
    return np.broadcast_to(x, shape)


@reference("SliceChannel")
def slice_channel(x, num_outputs, axis=1, squeeze_axis=False):
    parts = np.split(x, num_outputs, axis)
    return tuple(np.squeeze(p, axis) for p in parts) if squeeze_axis else tuple(parts)


@reference("_split_v2")
def split_v2(x, indices=(), axis=1, squeeze_axis=False, sections=0):
    parts = np.split(x, sections or [i for i in indices if i], axis)
    return tuple(np.squeeze(p, axis) for p in parts) if squeeze_axis else tuple(parts)


def region(ndim, begin, end, step=()):
    """NumPy index of begin, end and step, which may have None and fewer axes."""
    step = step or (None,) * len(begin)
    parts = [slice(b, e, s) for b, e, s in zip(begin, end, step, strict=True)]
    return tuple(parts + [slice(None)] * (ndim - len(parts)))


REFERENCES["slice"] = lambda x, begin, end, step=(): x[region(x.ndim, begin, end, step)]


@reference("slice_axis")
def slice_axis(x, axis, begin, end):
    index = [slice(None)] * x.ndim
    index[axis] = slice(begin, end)
    return x[tuple(index)]


@reference("_slice_assign")
def slice_assign(x, value, begin, end, step=()):
    y = x.copy()
    y[region(x.ndim, begin, end, step)] = value
    return y


@reference("_slice_assign_scalar")
def slice_assign_scalar(x, scalar=0.0, begin=(), end=(), step=()):
    return slice_assign(x, scalar, begin, end, step)


@reference("Pad")
def pad(x, mode, pad_width, constant_value=0):
    widths = [tuple(pad_width[i : i + 2]) for i in range(0, len(pad_width), 2)]
    if mode == "constant":
        return np.pad(x, widths, mode, constant_values=constant_value)
    return np.pad(x, widths, mode)


@reference("Crop")
def crop(x, *like, num_args=1, offset=(0, 0), h_w=(0, 0), center_crop=False):
    h, w = like[0].shape[2:] if like else h_w
    top, left = offset
    if center_crop:
        top, left = (x.shape[2] - h) // 2, (x.shape[3] - w) // 2
    return x[:, :, top : top + h, left : left + w]


@reference("diag")
def diag(x, k=0, axis1=0, axis2=1):
    return np.diag(x, k) if x.ndim == 1 else np.diagonal(x, k, axis1, axis2)


@reference("depth_to_space")
def depth_to_space(x, block_size):
    n, c, h, w = x.shape
    b = block_size
    y = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // b**2, h * b, w * b)


@reference("space_to_depth")
def space_to_depth(x, block_size):
    n, c, h, w = x.shape
    b = block_size
    y = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * b**2, h // b, w // b)


@reference("take")
def take(x, indices, axis=0, mode="clip"):
    return np.take(x, indices.astype("int64"), axis, mode=mode)


@reference("batch_take")
def batch_take(x, indices):
    return x[np.arange(len(x)), indices.astype("int64")]


@reference("one_hot")
def one_hot(indices, depth, on_value=1.0, off_value=0.0, dtype="float32"):
    hot = indices.astype("int64")[..., None] == np.arange(depth)
    return np.where(hot, on_value, off_value).astype(dtype)


@reference("gather_nd")
def gather_nd(x, indices):
    return x[tuple(indices.astype("int64"))]


@reference("scatter_nd")
def scatter_nd(x, indices, shape):
    y = np.zeros(shape, x.dtype)
    y[tuple(indices.astype("int64"))] = x
    return y


@reference("_backward_gather_nd")
def scatter_sums(x, indices, shape):
    y = np.zeros(shape, x.dtype)
    np.add.at(y, tuple(indices.astype("int64")), x)
    return y


@reference("_scatter_set_nd")
def scatter_set_nd(lhs, rhs, indices, shape):
    y = lhs.copy()
    y[tuple(indices.astype("int64"))] = rhs
    return y


REFERENCES["ravel_multi_index"] = lambda x, shape: np.ravel_multi_index(
    tuple(x.astype("int64")), shape
).astype(x.dtype)
REFERENCES["unravel_index"] = lambda x, shape: np.array(
    np.unravel_index(x.astype("int64"), shape)
).astype(x.dtype)
