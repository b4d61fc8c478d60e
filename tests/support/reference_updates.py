"""Oracles of updates of many weights, of LAMB and AdamW, and of what they need of all arrays."""

import numpy as np
from reference import reference
from reference_nn import clipped, nag_mom_update, sgd_mom_update, sgd_update


def groups(arrays, size, count):
    return [arrays[i * size : (i + 1) * size] for i in range(count)]


def joined(steps):
    """Outputs of all weights, then their states."""
    return tuple(s[0] for s in steps) + tuple(x for s in steps for x in s[1:])


def descent(names, states, mixed, preloaded):
    size = 2 + states + mixed

    def many(*arrays, num_weights=1, lrs=None, wds=None, **params):
        rates = arrays[-2:] if preloaded else (lrs, wds)
        steps = []
        for i, (w, g, *rest) in enumerate(groups(arrays, size, num_weights)):
            w = rest.pop() if mixed else w
            given = {"lr": rates[0][i], "wd": rates[1][i], **params}
            if states:
                w, m = sgd_mom_update(w, g, *rest, **given)
                steps.append((w, m, w) if mixed else (w, m))
            else:
                w = sgd_update(w, g, **given)
                steps.append((w, w) if mixed else (w,))
        return joined(steps)

    reference(*names)(many)


for prefix, preloaded in (("multi", False), ("preloaded_multi", True)):
    descent([f"{prefix}_sgd_update"], 0, 0, preloaded)
    descent([f"{prefix}_sgd_mom_update"], 1, 0, preloaded)
    descent([f"{prefix}_mp_sgd_update"], 0, 1, preloaded)
    descent([f"{prefix}_mp_sgd_mom_update"], 1, 1, preloaded)


@reference("mp_nag_mom_update")
def mp_nag_mom_update(w, g, m, w32, **params):
    w32, m = nag_mom_update(w32, g, m, **params)
    return w32, m, w32


def averages(g, mean, var, beta1, beta2):
    return beta1 * mean + (1 - beta1) * g, beta2 * var + (1 - beta2) * g * g


@reference("lamb_update_phase1")
def lamb_update_phase1(
    w, g, mean, var, t, wd, beta1=0.9, beta2=0.999, epsilon=1e-6, bias_correction=True,
    rescale_grad=1.0, clip_gradient=-1.0,
):  # fmt: skip
    mean, var = averages(clipped(g * rescale_grad, clip_gradient), mean, var, beta1, beta2)
    m, v = mean, var
    if bias_correction:
        # betas are float32 parameters, and 1 - beta2^t shows it
        m, v = m / (1 - np.float32(beta1) ** t), v / (1 - float(np.float32(beta2)) ** t)
    return m / (np.sqrt(v) + epsilon) + wd * w, mean, var


@reference("mp_lamb_update_phase1")
def mp_lamb_update_phase1(w, g, mean, var, w32, **params):
    return lamb_update_phase1(w32, g, mean, var, **params)


@reference("lamb_update_phase2")
def lamb_update_phase2(w, u, r1, r2, lr, lower_bound=-1.0, upper_bound=-1.0):
    if lower_bound >= 0:
        r1 = np.maximum(r1, lower_bound)
    if upper_bound >= 0:
        r1 = np.minimum(r1, upper_bound)
    ratio = np.where((r1 == 0) | (r2 == 0), 1, r1 / np.where(r2 == 0, 1, r2))
    return w - lr * ratio * u


@reference("mp_lamb_update_phase2")
def mp_lamb_update_phase2(w, u, r1, r2, w32, **params):
    w32 = lamb_update_phase2(w32, u, r1, r2, **params)
    return w32, w32


def lamb(mixed):
    def many(
        *arrays, learning_rates, wds, step_count, num_tensors=1, lower_bound=-1.0,
        upper_bound=-1.0, **params,
    ):  # fmt: skip
        steps = []
        for i, (w, g, mean, var, *copy) in enumerate(groups(arrays, 4 + mixed, num_tensors)):
            norm = np.linalg.norm(w)  # of the weight, not of its copy
            w = copy[0] if mixed else w
            u, mean, var = lamb_update_phase1(w, g, mean, var, t=step_count[i], wd=wds[i], **params)
            w = lamb_update_phase2(
                w, u, norm, np.linalg.norm(u), learning_rates[i], lower_bound,
                upper_bound,
            )  # fmt: skip
            steps.append((w, mean, var, w) if mixed else (w, mean, var))
        return joined(steps)

    return many


reference("_multi_lamb_update")(lamb(0))
reference("_multi_mp_lamb_update")(lamb(1))


@reference("_adamw_update")
def adamw_update(
    w, g, mean, var, rescale_grad, lr, eta, beta1=0.9, beta2=0.999, epsilon=1e-8, wd=0.0,
    clip_gradient=-1.0,
):  # fmt: skip
    if not np.isfinite(rescale_grad[0]) or rescale_grad[0] == 0:
        return w, mean, var
    mean, var = averages(clipped(g * rescale_grad, clip_gradient), mean, var, beta1, beta2)
    return w - eta * (lr * mean / (np.sqrt(var) + epsilon) + wd * w), mean, var


@reference("_mp_adamw_update")
def mp_adamw_update(w, g, mean, var, w32, rescale_grad, **params):
    new, mean, var = adamw_update(w32, g, mean, var, rescale_grad, **params)
    return (new if rescale_grad[0] else w), mean, var, new


def adamw(mixed):
    one = mp_adamw_update if mixed else adamw_update

    def many(*arrays, lrs, wds, etas, num_weights=1, **params):
        steps = []
        for i, group in enumerate(groups(arrays, 4 + mixed, num_weights)):
            rates = {"lr": lrs[i], "wd": wds[i], "eta": etas[i]}
            steps.append(one(*group, arrays[-1], **rates, **params))
        return joined(steps)

    return many


reference("_multi_adamw_update")(adamw(0))
reference("_multi_mp_adamw_update")(adamw(1))


@reference("_contrib_group_adagrad_update")
def group_adagrad_update(w, g, h, lr, rescale_grad=1.0, clip_gradient=-1.0, epsilon=1e-5):
    g = clipped(g * rescale_grad, clip_gradient)
    h = h + np.square(g).reshape(len(g), -1).mean(1).reshape(h.shape)
    rows = h.reshape((-1,) + (1,) * (g.ndim - 1))
    return w - lr * g / np.sqrt(rows + epsilon), h


@reference("multi_sum_sq")
def multi_sum_sq(*arrays, num_arrays):
    return np.array([np.square(a.astype("float64")).sum() for a in arrays])


@reference("multi_lars")
def multi_lars(lrs, weights, grads, wds, eta, eps, rescale_grad=1.0):
    w, g = np.sqrt(weights), np.sqrt(grads) * rescale_grad
    both = (w > 0) & (g > 0)
    return lrs * np.where(both, eta * w / (g + wds * w + eps), 1)


@reference("all_finite")
def all_finite(x, init_output=True):
    return np.array([float(np.isfinite(x).all())])


@reference("multi_all_finite")
def multi_all_finite(*arrays, num_arrays=1, init_output=True):
    return np.array([float(all(np.isfinite(a).all() for a in arrays))])


@reference("reset_arrays")
def reset_arrays(*arrays, num_arrays):
    return tuple(np.zeros_like(a) for a in arrays)


@reference("amp_multicast")
def amp_multicast(*arrays, num_outputs, cast_narrow=False):
    return arrays
