"""NumPy oracles of the operators on images; see `reference.py`.

Resizing is written down pixel by pixel, from the conventions that OpenCV documents.
"""

import math

import numpy as np
from reference import reference


@reference("_image_flip_left_right")
def flip_left_right(x):
    return x[..., ::-1, :]


@reference("_image_flip_top_bottom")
def flip_top_bottom(x):
    return x[..., ::-1, :, :]


@reference("_image_to_tensor")
def to_tensor(x):
    return np.moveaxis(x, -1, -3) / 255


@reference("_image_normalize")
def normalize(x, mean=(0.0,), std=(1.0,)):
    mean, std = (np.array(v).reshape(-1, 1, 1) for v in (mean, std))
    return (x - mean) / std


def cubic(t, a=-0.75):
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def lanczos(t):
    return float(np.sinc(t) * np.sinc(t / 4)) if abs(t) < 4 else 0.0


def shares(old, new, interp, shrinks):
    """For every new place, {old place: weight}."""
    scale = old / new
    found = []
    for i in range(new):
        weights = {}

        def add(k, w, weights=weights):
            k = min(max(k, 0), old - 1)
            weights[k] = weights.get(k, 0.0) + w

        at = (i + 0.5) * scale - 0.5
        low = math.floor(at + 1e-9) if abs(at - round(at)) < 1e-9 else math.floor(at)
        if interp == 0:
            add(int(i * scale + 1e-9), 1.0)
        elif interp == 3 and shrinks:
            for k in range(old):
                add(k, max(0.0, min(k + 1, (i + 1) * scale) - max(k, i * scale)) / scale)
        elif interp == 3:
            low = math.floor(i * scale + 1e-9)
            part = (i + 1) - (low + 1) / scale
            part = 0.0 if part <= 0 else part - math.floor(part)
            add(low, 1 - part)
            add(low + 1, part)
        else:
            reach, f = {1: (1, lambda t: 1 - abs(t)), 2: (2, cubic), 4: (4, lanczos)}[interp]
            raw = [(k, f(at - k)) for k in range(low - reach + 1, low + reach + 1)]
            total = sum(w for _, w in raw)
            for k, w in raw:
                add(k, w / total)
        found.append(weights)
    return found


def resized(x, w, h, interp):
    """An image (H, W, C) of another size."""
    height, width, channels = x.shape
    if interp == 1 and (height, width) == (2 * h, 2 * w):
        interp = 3  # as OpenCV
    shrinks = height >= h and width >= w
    rows, columns = (shares(o, n, interp, shrinks) for o, n in ((height, h), (width, w)))
    out = np.zeros((h, w, channels))
    for i, j in np.ndindex(h, w):
        for a, u in rows[i].items():
            for b, v in columns[j].items():
                out[i, j] += u * v * x[a, b]
    return out


@reference("_cvimresize")
def cv_resize(x, w, h, interp=1):
    return resized(x, w, h, interp)


@reference("_image_resize")
def resize(x, size, keep_ratio=False, interp=1):
    if x.ndim == 4:
        return np.stack([resize(image, size, keep_ratio, interp) for image in x])
    height, width = x.shape[:2]
    if len(size) == 2:
        w, h = size
    elif keep_ratio and height > width:
        w, h = size[0], size[0] * height // width
    elif keep_ratio:
        w, h = size[0] * width // height, size[0]
    else:
        w = h = size[0]
    return resized(x, w, h, interp)


MODES = {1: "edge", 2: "symmetric", 3: "wrap", 4: "reflect"}


@reference("_cvcopyMakeBorder")
def border(x, top, bot, left, right, type=0, value=0.0, values=()):
    width = ((top, bot), (left, right), (0, 0))
    if type:
        return np.pad(x, width, mode=MODES[type])
    fill = np.broadcast_to(np.array(values or value, dtype=x.dtype), x.shape[2:])
    return np.stack(
        [np.pad(x[..., c], width[:2], constant_values=fill[c]) for c in range(x.shape[2])], 2
    )


EIGVAL = np.array([55.46, 4.794, 1.148])
EIGVEC = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)


@reference("_image_adjust_lighting")
def adjust_lighting(x, alpha):
    return x if x.shape[2] == 1 else x + EIGVEC @ (EIGVAL * np.array(alpha))


@reference("_image_crop")
def crop(data, **p):
    rows, columns = slice(p["y"], p["y"] + p["height"]), slice(p["x"], p["x"] + p["width"])
    return data[..., rows, columns, :]
