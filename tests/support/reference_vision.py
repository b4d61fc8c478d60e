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
        if id_index >= 0 and background_id >= 0:
            rows = [r for r in rows if r[id_index] != background_id]
        rows = sorted(rows, key=lambda r: -r[score_index])
        kept = []
        for r in rows[:topk] if topk > 0 else rows:
            box = corners(r[place], in_format)
            rivals = [k for k in kept if force_suppress or id_index < 0 or k[id_index] == r[id_index]]
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
    loc, mask, classes = np.zeros((n, a, 4)), np.zeros((n, a, 4)), np.full((n, a), ignore_label * 1.0)
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
            np.array([best[i], score[i], *boxes[i]]) for i in range(a) if score[i] >= np.float32(threshold)
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
    for n, scale, given in zip(x.shape[2:], (scale_height, scale_width), (height, width), strict=True):
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
        rows, columns = slice(i * h // n, -(-(i + 1) * h // n)), slice(j * w // m, -(-(j + 1) * w // m))
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
    out = np.zeros((len(a), len(moves) ** 2, len(ys), len(xs)))
    for (d, (dy, dx)), (i, y), (j, x) in itertools.product(
        enumerate(itertools.product(moves, moves)), enumerate(ys), enumerate(xs)
    ):
        left = a[:, :, y : y + kernel_size, x : x + kernel_size]
        right = b[:, :, y + dy : y + dy + kernel_size, x + dx : x + dx + kernel_size]
        agree = left * right if is_multiply else np.abs(left - right)
        out[:, d, i, j] = agree.mean((1, 2, 3))
    return out


def bilinear(plane, y, x):
    """Planes (..., H, W) at a place inside of them."""
    h, w = plane.shape[-2:]
    y0, x0 = min(int(y), h - 1), min(int(x), w - 1)
    y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
    fy, fx = y - y0, x - x0
    top = plane[..., y0, x0] * (1 - fx) + plane[..., y0, x1] * fx
    return top * (1 - fy) + (plane[..., y1, x0] * (1 - fx) + plane[..., y1, x1] * fx) * fy


def align(x, pooled_size, ratio, frame):
    """Averages of samples of one region; its frame is image, extents and the map to places."""
    h, w = x.shape[2:]
    n, m = pooled_size
    image, (width, height), place = frame
    out = np.zeros((x.shape[1], n, m))
    if image < 0:
        return out
    ny, nx = (ratio, ratio) if ratio > 0 else (int(np.ceil(height / n)), int(np.ceil(width / m)))
    for i, j, ky, kx in np.ndindex(n, m, ny, nx):
        px, py = place((j + (kx + 0.5) / nx) * width / m, (i + (ky + 0.5) / ny) * height / n)
        if -1 <= px <= w and -1 <= py <= h:
            inside = np.clip(py, 0, h - 1), np.clip(px, 0, w - 1)
            out[:, i, j] += bilinear(x[image], *inside) / (ny * nx)
    return out


@reference("_contrib_ROIAlign")
def roi_align(
    x, rois, pooled_size=None, spatial_scale=1.0, sample_ratio=-1, position_sensitive=False,
    aligned=False,
):  # fmt: skip
    out = []
    for r in rois:
        x1, y1, x2, y2 = r[1:] * spatial_scale - (0.5 if aligned else 0)
        least = -np.inf if aligned else 1
        size = max(x2 - x1, least), max(y2 - y1, least)
        place = lambda u, v, x1=x1, y1=y1: (x1 + u, y1 + v)  # noqa: E731
        out.append(align(x, pooled_size, sample_ratio, (int(r[0]), size, place)))
    out = np.array(out)
    if not position_sensitive:
        return out
    n, m = pooled_size
    i, j = np.ogrid[:n, :m]
    return out.reshape(len(rois), -1, n, m, n, m)[:, :, i, j, i, j]


@reference("_contrib_RROIAlign")
def rotated_roi_align(x, rois, pooled_size=None, spatial_scale=1.0, sampling_ratio=-1):
    out = []
    for image, cx, cy, w, h, degrees in rois:
        cx, cy = cx * spatial_scale, cy * spatial_scale
        size = max(w * spatial_scale, 1), max(h * spatial_scale, 1)
        turn = np.exp(-1j * np.deg2rad(degrees))

        def place(u, v, cx=cx, cy=cy, size=size, turn=turn):
            z = (u - size[0] / 2 + 1j * (v - size[1] / 2)) * turn
            return cx + z.real, cy + z.imag

        out.append(align(x, pooled_size, sampling_ratio, (int(image), size, place)))
    return np.array(out)


def half_up(v):
    """Rounded, halves away from zero."""
    return np.sign(v) * np.floor(np.abs(v) + 0.5)


def position_sensitive(x, groups, pooled, output_dim):
    """(N, output_dim, pooled, pooled, H, W): the plane that each bin reads."""
    g = np.arange(pooled) * groups // pooled
    planes = x.reshape(len(x), output_dim, groups, groups, *x.shape[2:])
    return planes[:, :, g][:, :, :, g]


@reference("_contrib_PSROIPooling")
def ps_roi_pooling(x, rois, spatial_scale=1.0, output_dim=1, pooled_size=1, group_size=0):
    p = pooled_size
    planes = position_sensitive(x, group_size or p, p, output_dim)
    out = np.zeros((len(rois), output_dim, p, p))
    for r, roi in enumerate(rois):
        first = half_up(roi[1:3]) * spatial_scale
        step = np.maximum((half_up(roi[3:5]) + 1) * spatial_scale - first, 0.1) / p
        edge = lambda k, axis: first[axis] + k * step[axis]  # noqa: E731, B023
        for i, j in np.ndindex(p, p):
            ends = [(np.floor(edge(k, a)), np.ceil(edge(k + 1, a))) for k, a in ((i, 1), (j, 0))]
            rows, columns = (
                slice(*(int(np.clip(v, 0, n)) for v in e)) for e, n in zip(ends, x.shape[2:], strict=True)
            )
            part = planes[int(roi[0]), :, i, j, rows, columns]
            out[r, :, i, j] = part.mean((1, 2)) if part[0].size else 0
    return out


@reference("_contrib_DeformablePSROIPooling")
def deformable_ps_roi_pooling(
    x, rois, trans=None, spatial_scale=1.0, output_dim=1, group_size=1, pooled_size=1, part_size=0,
    sample_per_part=1, trans_std=0.0, no_trans=False,
):  # fmt: skip
    p, parts, (h, w) = pooled_size, part_size or pooled_size, x.shape[2:]
    planes = position_sensitive(x, group_size, p, output_dim)
    out = np.zeros((len(rois), output_dim, p, p))
    for (r, roi), c, i, j in itertools.product(
        enumerate(rois), range(output_dim), range(p), range(p)
    ):
        first = half_up(roi[1:3]) * spatial_scale - 0.5
        size = np.maximum((half_up(roi[3:5]) + 1) * spatial_scale - 0.5 - first, 0.1)
        if not no_trans:
            k = c // (output_dim // (trans.shape[1] // 2))
            at = trans[r, 2 * k : 2 * k + 2, i * parts // p, j * parts // p]
            first = first + at * trans_std * size
        values = []
        for ky, kx in np.ndindex(sample_per_part, sample_per_part):
            px, py = first + (np.array([j, i]) + np.array([kx, ky]) / sample_per_part) * size / p
            if -0.5 <= px <= w - 0.5 and -0.5 <= py <= h - 0.5:
                inside = np.clip(py, 0, h - 1), np.clip(px, 0, w - 1)
                values.append(bilinear(planes[int(roi[0]), c, i, j], *inside))
        out[r, c, i, j] = np.mean(values) if values else 0
    return out


def deformed(x, offset, mask, weight, bias, read, p):
    """A convolution whose filters read at moved places by `read`."""
    kernel, groups, shared = p["kernel"], p.get("num_group", 1), p.get("num_deformable_group", 1)
    stride, dilate, pad = (p.get(k) or d for k, d in (("stride", (1, 1)), ("dilate", (1, 1)), ("pad", (0, 0))))
    n, c = x.shape[:2]
    out = np.zeros((n, len(weight), *offset.shape[2:]))
    taps = np.prod(kernel)
    for b, i, j, t in np.ndindex(n, *offset.shape[2:], int(taps)):
        at = np.array(divmod(t, kernel[1])) * dilate + np.array([i, j]) * stride - pad
        value = np.zeros(c)
        for g in range(shared):
            k = g * taps + t
            own = slice(g * c // shared, (g + 1) * c // shared)
            value[own] = read(x[b, own], *(at + offset[b, 2 * k : 2 * k + 2, i, j]))
            if mask is not None:
                value[own] *= mask[b, k, i, j]
        w = weight.reshape(groups, -1, c // groups, taps)[..., t]
        out[b, :, i, j] += np.einsum("gfc,gc->gf", w, value.reshape(groups, -1)).ravel()
    return out if bias is None else out + bias.reshape(-1, 1, 1)


@reference("_contrib_DeformableConvolution")
def deformable_convolution(x, offset, weight, bias=None, **p):
    def read(plane, y, x):
        h, w = plane.shape[1:]
        inside = 0 <= y < h and 0 <= x < w
        return bilinear(plane, min(y, h - 1), min(x, w - 1)) if inside else 0

    return deformed(x, offset, None, weight, bias, read, p)


@reference("_contrib_ModulatedDeformableConvolution")
def modulated_deformable_convolution(x, offset, mask, weight, bias=None, **p):
    def read(plane, y, x):
        h, w = plane.shape[1:]
        if not (-1 < y < h and -1 < x < w):
            return 0
        return bilinear(np.pad(plane, [(0, 0), (1, 1), (1, 1)]), y + 1, x + 1)

    return deformed(x, offset, mask, weight, bias, read, p)


@reference("_contrib_Proposal", "_contrib_MultiProposal")
def proposal(
    prob, pred, info, rpn_pre_nms_top_n=6000, rpn_post_nms_top_n=300, threshold=0.7, rpn_min_size=16,
    scales=(4, 8, 16, 32), ratios=(0.5, 1, 2), feature_stride=16, output_score=False, iou_loss=False,
):  # fmt: skip
    rows, row_scores = [], []
    count, side = len(scales) * len(ratios), feature_stride
    for image in range(len(prob)):
        boxes, scores = [], []
        height, width, scale = info[image]
        for i, j, a in np.ndindex(*prob.shape[2:], count):
            ratio, s = ratios[a // len(scales)], scales[a % len(scales)]
            w = np.floor(np.sqrt(np.floor(side * side / ratio)) + 0.5)
            size = np.array([w * s, np.floor(w * ratio + 0.5) * s])
            middle = np.array([j, i]) * side + (side - 1) / 2
            d, score = pred[image, 4 * a : 4 * a + 4, i, j], prob[image, count + a, i, j]
            low, high = middle - (size - 1) / 2, middle + (size - 1) / 2
            if iou_loss:
                low, high = low + d[:2], high + d[2:]
            else:
                middle, reach = middle + d[:2] * size, (np.exp(d[2:]) * size - 1) / 2
                low, high = middle - reach, middle + reach
            edge = np.array([width, height]) - 1
            low, high = low.clip(0, edge), high.clip(0, edge)
            if i >= height // side or j >= width // side:
                score = -1
            if (high - low + 1 < rpn_min_size * scale).any():
                half = rpn_min_size * scale / 2
                low, high, score = low - half, high + half, -1
            boxes.append([*low, *high])
            scores.append(score)
        kept, order = [], np.argsort(-np.array(scores), kind="stable")
        ends = np.array([0, 0, 1, 1])  # a box is one wider than its corners say
        for at in order[:rpn_pre_nms_top_n]:
            box = np.array(boxes[at]) + ends
            if all(iou(np.array(boxes[k]) + ends, box) <= threshold for k in kept):
                kept.append(at)
        for i in range(rpn_post_nms_top_n):
            at = kept[:rpn_post_nms_top_n][i % min(len(kept), rpn_post_nms_top_n)]
            rows.append([image, *boxes[at]])
            row_scores.append([scores[at]])
    return (np.array(rows), np.array(row_scores)) if output_score else np.array(rows)


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
