"""Losses against their formulas in NumPy, hybrid and not."""

import numpy as np
import pytest

from rsnet import autograd, nd
from rsnet.gluon import loss as losses

rng = np.random.default_rng(0)
PRED, LABEL = rng.normal(size=(2, 6, 5))
POSITIVE = np.abs(LABEL)
SIGN = np.sign(rng.normal(size=(6, 5)))
BIT = (SIGN + 1) / 2
CLASS = rng.integers(0, 5, 6)
WEIGHT = rng.uniform(size=(6, 1))


def softmax(x):
    e = np.exp(x)
    return e / e.sum(1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


P, Q = softmax(PRED), softmax(LABEL)


def mean(x):
    return x.mean(1)


def cosine(x, y):
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def huber(d):
    return np.where(d > 0.7, d - 0.35, d * d / 1.4)


def sdml(x, y):
    distance = ((x[:, None] - y[None]) ** 2).sum(2)
    log_p = np.log(softmax(-distance))
    wanted = np.full((6, 6), 0.06) + np.eye(6) * (0.7 - 0.06)
    return (wanted * (np.log(wanted) - log_p)).sum(1)


STIRLING = np.where(
    POSITIVE * 3 > 1,
    POSITIVE * 3 * np.log(POSITIVE * 3) - POSITIVE * 3 + 0.5 * np.log(6 * np.pi * POSITIVE),
    0,
)

# Loss, its arguments, and what it must be.
CASES = {
    "l2": (losses.L2Loss(), (PRED, LABEL), mean((PRED - LABEL) ** 2) / 2),
    "l2, no weight": (losses.L2Loss(weight=None), (PRED, LABEL), mean((PRED - LABEL) ** 2) / 2),
    "l2, weighted": (
        losses.L2Loss(weight=3.0),
        (PRED, LABEL, WEIGHT),
        mean((PRED - LABEL) ** 2 * WEIGHT) * 1.5,
    ),
    "l1": (losses.L1Loss(), (PRED, LABEL), mean(abs(PRED - LABEL))),
    "l1, other axis": (losses.L1Loss(2.0, 1), (PRED, LABEL), 2 * abs(PRED - LABEL).mean(0)),
    "binary": (
        losses.SigmoidBCELoss(),
        (PRED, BIT),
        -mean(BIT * np.log(sigmoid(PRED)) + (1 - BIT) * np.log(1 - sigmoid(PRED))),
    ),
    "binary, weight of positives": (
        losses.SigmoidBCELoss(),
        (PRED, BIT, WEIGHT, np.full((1, 5), 3.0)),
        -mean((3 * BIT * np.log(sigmoid(PRED)) + (1 - BIT) * np.log(1 - sigmoid(PRED))) * WEIGHT),
    ),
    "binary, probabilities": (
        losses.SigmoidBCELoss(from_sigmoid=True),
        (P, BIT),
        -mean(BIT * np.log(P) + (1 - BIT) * np.log(1 - P)),
    ),
    "classes": (losses.SoftmaxCELoss(), (PRED, CLASS), -np.log(P[np.arange(6), CLASS])),
    "classes, dense": (
        losses.SoftmaxCELoss(sparse_label=False),
        (PRED, Q),
        -(Q * np.log(P)).sum(1),
    ),
    "classes, logits": (
        losses.SoftmaxCELoss(from_logits=True, weight=0.5),
        (np.log(P), CLASS, WEIGHT),
        -np.log(P[np.arange(6), CLASS]) * WEIGHT[:, 0] / 2,
    ),
    "divergence": (losses.KLDivLoss(), (np.log(P), Q), (Q * (np.log(Q) - np.log(P))).sum(1)),
    "divergence, scores": (
        losses.KLDivLoss(from_logits=False),
        (PRED, Q),
        (Q * (np.log(Q) - np.log(P))).sum(1),
    ),
    "huber": (losses.HuberLoss(0.7), (PRED, LABEL), mean(huber(abs(PRED - LABEL)))),
    "hinge": (losses.HingeLoss(), (PRED, SIGN), mean(np.maximum(0, 1 - PRED * SIGN))),
    "squared hinge": (
        losses.SquaredHingeLoss(0.5),
        (PRED, SIGN),
        mean(np.maximum(0, 0.5 - PRED * SIGN) ** 2),
    ),
    "logistic": (losses.LogisticLoss(), (PRED, SIGN), mean(np.log1p(np.exp(-PRED * SIGN)))),
    "logistic, bits": (
        losses.LogisticLoss(label_format="binary"),
        (PRED, BIT),
        mean(np.log1p(np.exp(-PRED * SIGN))),
    ),
    "triplet": (
        losses.TripletLoss(),
        (PRED, LABEL, SIGN),
        np.maximum(((PRED - LABEL) ** 2 - (PRED - SIGN) ** 2).sum(1) + 1, 0),
    ),
    "poisson": (losses.PoissonNLLLoss(), (PRED, POSITIVE), (np.exp(PRED) - POSITIVE * PRED).mean()),
    "poisson, whole": (
        losses.PoissonNLLLoss(from_logits=False, compute_full=True),
        (P, POSITIVE * 3),
        (P - POSITIVE * 3 * np.log(P) + STIRLING).mean(),
    ),
    "cosine": (
        losses.CosineEmbeddingLoss(margin=0.1),
        (PRED, LABEL, SIGN[:, 0]),
        np.where(
            SIGN[:, 0] == 1, 1 - cosine(PRED, LABEL), np.maximum(cosine(PRED, LABEL) - 0.1, 0)
        )[:, None],
    ),
    "metric": (losses.SDMLLoss(), (PRED, LABEL), sdml(PRED, LABEL)),
}


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybrid"])
@pytest.mark.parametrize("name", list(CASES))
def test_loss_matches_numpy(name, hybrid):
    loss, args, expected = CASES[name]
    loss.hybridize(hybrid)
    arrays = [nd.array(arg) for arg in args]
    arrays[0].attach_grad()
    with autograd.record():
        found = loss(*arrays)
    found.backward()
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=2e-4, atol=1e-5)
    assert np.isfinite(arrays[0].grad.asnumpy()).all()


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybrid"])
def test_ctc_adds_up_paths(hybrid):
    # Labels 0, 1 and blank; one step, so the only path of "0" is 0 itself.
    loss = losses.CTCLoss()
    loss.hybridize(hybrid)
    found = loss(nd.array([[[1.0, 2.0, 3.0]]]), nd.array([[0, -1]]))
    assert found.asscalar() == pytest.approx(-np.log(softmax(np.array([[1.0, 2, 3]]))[0, 0]))
    # Two steps: 00, 0-, -0.
    scores = np.array([[[0.1, 0.5, 0.3], [0.9, 0.2, 0.4]]])
    p, q = softmax(scores[0])
    paths = p[0] * q[0] + p[0] * q[2] + p[2] * q[0]
    assert loss(nd.array(scores), nd.array([[0, -1]])).asscalar() == pytest.approx(
        -np.log(paths), rel=1e-5
    )
    turned = losses.CTCLoss(layout="TNC", label_layout="TN", weight=2.0)
    found = turned(nd.array(scores.transpose(1, 0, 2)), nd.array([[0], [-1]]))
    assert found.asscalar() == pytest.approx(-2 * np.log(paths), rel=1e-5)


def test_a_label_of_ctc_may_name_the_blank():
    labels, lengths = nd.array([[2, 1, 2, 2], [3, 2, 2, 2]]), nd.array([2, 3])
    even = losses.CTCLoss()(nd.ones((2, 20, 4)), labels, None, lengths)
    np.testing.assert_allclose(even.asnumpy(), [18.828207, 16.505817], rtol=1e-5)  # MXNet 1.9.1's

    def loss(values):
        x = nd.array(values, dtype="float64")
        x.attach_grad()
        with autograd.record():
            found = losses.CTCLoss()(x, labels, None, lengths)
        found.backward()
        return found.asnumpy().sum(), x.grad.asnumpy()

    scores, step = np.random.RandomState(0).uniform(-1, 1, (2, 4, 4)), 1e-6
    for i, got in enumerate(loss(scores)[1].ravel()):
        ends = [scores.copy(), scores.copy()]
        ends[0].flat[i] += step
        ends[1].flat[i] -= step
        assert got == pytest.approx((loss(ends[0])[0] - loss(ends[1])[0]) / (2 * step), abs=1e-6)


def test_wrong_losses_are_refused():
    with pytest.raises(AssertionError, match="invalid layout 'NCT': expected 'NTC' or 'TNC'"):
        losses.CTCLoss(layout="NCT")
    with pytest.raises(ValueError, match="invalid label_format 'x': expected 'signed' or 'binary'"):
        losses.LogisticLoss(label_format="x")
    with pytest.raises(AssertionError, match="invalid weight '3'"):
        losses.L1Loss(weight="3")(nd.ones((1, 1)), nd.ones((1, 1)))
    with pytest.raises(ValueError, match="at least 2"):
        losses.SDMLLoss()(nd.ones((1, 2)), nd.ones((1, 2)))
    with pytest.raises(RuntimeError, match=r"L2Loss 'l2loss\d+'"):
        losses.L2Loss()(nd.ones((2, 3)), nd.ones((4,)))
