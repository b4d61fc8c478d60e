"""NumPy oracles of the operators of computer vision; see `reference.py`."""

import itertools

import numpy as np
from reference import REFERENCES, reference
from reference_nn import tuple_of, windows


def corners(v, form="corner"):
    if form == "corner":
        return v
    half = v[..., 2:] / 2
    return np.concatenate([v[..., :2] - half, v[..., :2] + half], -1)


def centers(v):
    """Centers and extents of boxes given by corners."""
    return np.concatenate([(v[..., :2] + v[..., 2:]) / 2, v[..., 2:] - v[..., :2]], -1)


def area(v):
    return np.prod(np.maximum(v[..., 2:] - v[..., :2], 0), -1)


def iou(a, b):
    shared = area(
        np.concatenate([np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])], -1)
    )
    union = area(a) + area(b) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0)


@reference("_contrib_box_iou")
def box_iou(lhs, rhs, format="corner"):
    a, b = corners(lhs, format), corners(rhs, format)
    return iou(a.reshape(*a.shape[:-1], *[1] * (b.ndim - 1), 4), b)


@reference("_contrib_box_encode")
def box_encode(samples, matches, anchors, refs, means, stds):
    target, mask = np.zeros(anchors.shape), np.zeros(anchors.shape)
    for b, i in np.argwhere(samples > 0.5):
        a, r = centers(anchors[b, i]), centers(refs[b, int(matches[b, i])])
        raw = np.concatenate([(r[:2] - a[:2]) / a[2:], np.log(r[2:] / a[2:])])
        target[b, i], mask[b, i] = (raw - means) / stds, 1
    return target, mask


def decode(offsets, anchors, std, clip):
    d = offsets * std
    size = np.exp(np.minimum(d[..., 2:], clip if clip > 0 else np.inf)) * anchors[..., 2:]
    middle = d[..., :2] * anchors[..., 2:] + anchors[..., :2]
    return np.concatenate([middle - size / 2, middle + size / 2], -1)


@reference("_contrib_box_decode")
def box_decode(x, anchors, std0=1, std1=1, std2=1, std3=1, clip=-1.0, format="center"):
    anchors = anchors if format == "center" else centers(anchors)
    return decode(x, anchors, [std0, std1, std2, std3], clip)


@reference("_contrib_box_nms")
def box_nms(
    x, overlap_thresh=0.5, valid_thresh=0.0, topk=-1, coord_start=2, score_index=1, id_index=-1,
    background_id=-1, force_suppress=False, in_format="corner", out_format="corner",
):  # fmt: skip
    out = np.full(x.shape, -1.0)
    place = slice(coord_start, coord_start + 4)
    for block in np.ndindex(x.shape[:-2]):
        rows = [r for r in x[block] if r[score_index] > valid_thresh]
        if id_index >= 0:
            rows = [r for r in rows if int(r[id_index]) != background_id]
        rows = sorted(rows, key=lambda r: -r[score_index])
        kept = []
        for r in rows[:topk] if topk > 0 else rows:
            box = corners(r[place], in_format)
            alone = force_suppress or id_index < 0
            rivals = [k for k in kept if alone or int(k[id_index]) == int(r[id_index])]
            if all(iou(corners(k[place], in_format), box) <= overlap_thresh for k in rivals):
                kept.append(r)
        for i, r in enumerate(kept):
            out[block][i] = r
            if in_format != out_format:
                to = corners(r[place], "center") if out_format == "corner" else centers(r[place])
                out[block][i, place] = to
    return out


@reference("_contrib_bipartite_matching")
def bipartite_matching(x, threshold=None, is_ascend=False, topk=-1):
    rows, columns = np.full(x.shape[:-1], -1.0), np.full((*x.shape[:-2], x.shape[-1]), -1.0)
    sign = -1 if is_ascend else 1
    for block in np.ndindex(x.shape[:-2]):
        r, c, scores = rows[block], columns[block], x[block] * sign
        for at in np.argsort(-scores, axis=None, kind="stable"):
            i, j = np.unravel_index(at, scores.shape)
            full = topk > 0 and (r >= 0).sum() >= topk
            if scores[i, j] > threshold * sign and r[i] < 0 and c[j] < 0 and not full:
                r[i], c[j] = j, i
    return rows, columns


@reference("_contrib_MultiBoxPrior")
def multibox_prior(x, sizes=(1,), ratios=(1,), clip=False, steps=(-1, -1), offsets=(0.5, 0.5)):
    h, w = x.shape[2:]
    shapes = [(s, ratios[0]) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
    dy, dx = steps[0] if steps[0] > 0 else 1 / h, steps[1] if steps[1] > 0 else 1 / w
    rows = []
    for i, j in np.ndindex(h, w):
        y, x = (i + offsets[0]) * dy, (j + offsets[1]) * dx
        for s, r in shapes:
            a, b = s * h / w * np.sqrt(r) / 2, s / np.sqrt(r) / 2
            rows.append([x - a, y - b, x + a, y + b])
    out = np.array(rows)[None]
    return out.clip(0, 1) if clip else out


@reference("_contrib_MultiBoxTarget")
def multibox_target(
    anchor, label, pred, overlap_threshold=0.5, ignore_label=-1, negative_mining_ratio=-1,
    negative_mining_thresh=0.5, minimum_negative_samples=0, variances=(0.1, 0.1, 0.2, 0.2),
):  # fmt: skip
    n, a = len(label), anchor.shape[1]
    loc, mask, classes = (
        np.zeros((n, a, 4)),
        np.zeros((n, a, 4)),
        np.full((n, a), ignore_label * 1.0),
    )
    for image in range(n):
        ends = np.flatnonzero(label[image, :, 0] == -1)
        boxes = label[image, : ends[0] if len(ends) else None]
        if not len(boxes):
            continue
        overlap = iou(anchor[0][:, None], boxes[:, 1:5])
        owner = np.full(a, -1)
        left = overlap.copy()
        while left.max() > 1e-6:
            i, j = np.unravel_index(left.argmax(), left.shape)
            owner[i], left[i], left[:, j] = j, 0, 0
        best = overlap.max(1)
        more = (owner < 0) & (best > overlap_threshold) & (overlap_threshold > 0)
        owner[more] = overlap.argmax(1)[more]
        negative = np.flatnonzero(owner < 0)
        if negative_mining_ratio > 0:
            count = max(int((owner >= 0).sum() * negative_mining_ratio), minimum_negative_samples)
            e = np.exp(pred[image] - pred[image].max(0))
            negative = negative[best[negative] < negative_mining_thresh]
            order = np.argsort((e[0] / e.sum(0))[negative], kind="stable")
            negative = negative[order][:count]
        classes[image, negative] = 0
        for i in np.flatnonzero(owner >= 0):
            box, own = centers(boxes[owner[i], 1:5]), centers(anchor[0, i])
            raw = np.concatenate([(box[:2] - own[:2]) / own[2:], np.log(box[2:] / own[2:])])
            loc[image, i], mask[image, i] = raw / np.array(variances), 1
            classes[image, i] = boxes[owner[i], 0] + 1
    return loc.reshape(n, -1), mask.reshape(n, -1), classes


@reference("_contrib_MultiBoxDetection")
def multibox_detection(
    prob, loc, anchor, clip=True, threshold=0.01, background_id=0, nms_threshold=0.5,
    force_suppress=False, variances=(0.1, 0.1, 0.2, 0.2), nms_topk=-1,
):  # fmt: skip
    n, _, a = prob.shape
    out = np.full((n, a, 6), -1.0)
    for image in range(n):
        boxes = decode(loc[image].reshape(a, 4), centers(anchor[0]), variances, -1)
        boxes = boxes.clip(0, 1) if clip else boxes
        best, score = prob[image, 1:].argmax(0), prob[image, 1:].max(0)
        rows = [
            np.array([best[i], score[i], *boxes[i]])
            for i in range(a)
            if score[i] >= np.float32(threshold)
        ]
        if 0 < nms_threshold <= 1 and rows:
            kept = min(nms_topk, len(rows)) if nms_topk > 0 else len(rows)
            rows[:kept] = [r.copy() for r in sorted(rows, key=lambda r: -r[1])[:kept]]
            for r in rows[kept:]:
                r[0] = -1
            for i, winner in enumerate(rows):
                for rival in rows[i + 1 :]:
                    same = force_suppress or rival[0] == winner[0]
                    if winner[0] >= 0 and same and iou(winner[2:], rival[2:]) >= nms_threshold:
                        rival[0] = -1
        for i, r in enumerate(rows):
            out[image, i] = r
    return out


def linear(n, m, align):
    """The matrix (m, n) of bilinear interpolation."""
    matrix = np.zeros((m, n))
    for i in range(m):
        at = i * (n - 1) / max(m - 1, 1) if align else max((i + 0.5) * n / m - 0.5, 0)
        low = min(int(at), n - 1)
        matrix[i, low] += 1 - (at - low) if low + 1 < n else 1
        if low + 1 < n:
            matrix[i, low + 1] += at - low
    return matrix


@reference("_contrib_BilinearResize2D")
def bilinear_resize(
    x, like=None, height=1, width=1, scale_height=None, scale_width=None, mode="size",
    align_corners=True,
):  # fmt: skip
    size = []
    for n, scale, given in zip(
        x.shape[2:], (scale_height, scale_width), (height, width), strict=True
    ):
        odd = n % 2
        size.append({
            "size": int(n * scale) if scale else given,
            "odd_scale": int((n - odd) * (scale or 0)) + odd,
            "like": 0, "to_even_down": n - odd, "to_even_up": n + odd,
            "to_odd_down": n - 1 + odd, "to_odd_up": n + 1 - odd,
        }[mode])  # fmt: skip
    h, w = like.shape[-2:] if mode == "like" else size
    rows, columns = linear(x.shape[2], h, align_corners), linear(x.shape[3], w, align_corners)
    return np.einsum("ih,jw,nchw->ncij", rows, columns, x)


@reference("_contrib_AdaptiveAvgPooling2D")
def adaptive_avg_pooling(x, output_size=()):
    size = (tuple(output_size) * 2 or (1, 1))[:2]
    (h, w), (n, m) = x.shape[2:], size
    y = np.empty((*x.shape[:2], n, m))
    for i, j in np.ndindex(n, m):
        rows, columns = (
            slice(i * h // n, -(-(i + 1) * h // n)),
            slice(j * w // m, -(-(j + 1) * w // m)),
        )
        y[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
    return y


def unit(n):
    return np.linspace(-1, 1, n) if n > 1 else np.zeros(n)


@reference("GridGenerator")
def grid_generator(x, transform_type=None, target_shape=(0, 0)):
    if transform_type == "warp":
        h, w = x.shape[2:]
        places = np.stack(np.meshgrid(np.arange(w), np.arange(h)))
        return (x + places) * np.array([2 / (w - 1), 2 / (h - 1)]).reshape(1, 2, 1, 1) - 1
    h, w = target_shape
    ys, xs = np.meshgrid(unit(h), unit(w), indexing="ij")
    return np.einsum("nij,jhw->nihw", x.reshape(-1, 2, 3), np.stack([xs, ys, np.ones((h, w))]))


@reference("BilinearSampler")
def bilinear_sampler(x, grid, **_):
    n, c, h, w = x.shape
    out = np.zeros((n, c, *grid.shape[2:]))
    for b, i, j in np.ndindex(n, *grid.shape[2:]):
        at_x, at_y = (grid[b, :, i, j] + 1) * (np.array([w, h]) - 1) / 2
        for row in (int(np.floor(at_y)), int(np.floor(at_y)) + 1):
            for column in (int(np.floor(at_x)), int(np.floor(at_x)) + 1):
                if 0 <= row < h and 0 <= column < w:
                    weight = (1 - abs(at_y - row)) * (1 - abs(at_x - column))
                    out[b, :, i, j] += weight * x[b, :, row, column]
    return out


@reference("SpatialTransformer")
def spatial_transformer(x, loc, target_shape=(0, 0), **_):
    return bilinear_sampler(x, grid_generator(loc, "affine", target_shape))


@reference("Correlation")
def correlation(
    a, b, kernel_size=1, max_displacement=1, stride1=1, stride2=1, pad_size=0, is_multiply=True
):
    pad = [(0, 0), (0, 0), (pad_size, pad_size), (pad_size, pad_size)]
    a, b = np.pad(a, pad), np.pad(b, pad)
    border, reach = max_displacement + kernel_size // 2, max_displacement // stride2
    ys, xs = (range(max_displacement, n - border - kernel_size // 2, stride1) for n in a.shape[2:])
    moves = [m * stride2 for m in range(-reach, reach + 1)]
    k = kernel_size
    out = np.zeros((len(a), len(moves) ** 2, len(ys), len(xs)))
    for (i, y), (j, x) in itertools.product(enumerate(ys), enumerate(xs)):
        left = a[:, :, y : y + k, x : x + k]
        right = [b[:, :, y + v : y + v + k, x + u : x + u + k] for v in moves for u in moves]
        right = np.stack(right, 1)
        agree = left[:, None] * right if is_multiply else np.abs(left[:, None] - right)
        out[:, :, i, j] = agree.mean((2, 3, 4))
    return out


@reference("im2col")
def im2col(x, kernel=(), stride=(), dilate=(), pad=()):
    n = len(kernel)
    given = ((stride, 1), (dilate, 1), (pad, 0))
    stride, dilate, pad = (tuple_of(v, n, d) for v, d in given)
    patches = windows(x, kernel, stride, dilate, pad)  # (N, C, out..., kernel...)
    order = (0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n))
    return patches.transpose(order).reshape(len(x), x.shape[1] * int(np.prod(kernel)), -1)


@reference("col2im")
def col2im(x, output_size=(), kernel=(), **p):
    """The sum of the columns, by the places from which `im2col` took them."""
    channels = x.shape[1] // int(np.prod(kernel))
    shape = (len(x), channels, *output_size)
    places = np.arange(1, np.prod(shape) + 1).reshape(shape)
    at = im2col(places, kernel, **p).ravel()
    return np.bincount(at, x.ravel(), np.prod(shape) + 1)[1:].reshape(shape)


@reference("_contrib_SyncBatchNorm")
def sync_batch_norm(*arrays, key=None, ndev=1, **p):
    return REFERENCES["BatchNorm"](*arrays, **p)


@reference("_contrib_BatchNormWithReLU")
def batch_norm_with_relu(*arrays, **p):
    out = REFERENCES["BatchNorm"](*arrays, **p)
    return (np.maximum(out[0], 0), *out[1:]) if isinstance(out, tuple) else np.maximum(out, 0)
