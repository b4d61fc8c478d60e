"""Completes a table of ratings by matrix factorisation: users and items become short vectors.

python examples/matrix_factorisation.py
"""

import numpy as np

import rsnet as mx


def network(users, items, rank):
    """The rating of an item by a user: the product of their vectors."""
    user = mx.sym.Embedding(mx.sym.Variable("user"), input_dim=users, output_dim=rank, name="users")
    item = mx.sym.Embedding(mx.sym.Variable("item"), input_dim=items, output_dim=rank, name="items")
    return mx.sym.LinearRegressionOutput(mx.sym.sum(user * item, axis=1), name="rating")


def ratings(users, items, rank, known, seed=0):
    """A table of low rank, of which a share is `known`: (user, item, rating) for both shares."""
    random = np.random.RandomState(seed)
    table = random.normal(size=(users, rank)) @ random.normal(size=(rank, items)) / rank**0.5
    pairs = random.permutation(users * items)
    cut = int(known * len(pairs))
    user, item = np.divmod(pairs, items)
    rating = table[user, item]
    return [(user[part], item[part], rating[part]) for part in (slice(cut), slice(cut, None))]


def train(users=200, items=150, rank=4, known=0.3, num_epoch=40, batch_size=100):
    """Trains on the known ratings; returns the error of the others and that of guessing 0."""

    def batches(user, item, rating):
        data = {"user": user, "item": item}
        return mx.io.NDArrayIter(data, {"rating_label": rating}, batch_size, shuffle=True)

    seen, unseen = ratings(users, items, rank, known)
    module = mx.mod.Module(network(users, items, rank), ("user", "item"), ("rating_label",))
    module.fit(
        batches(*seen),
        num_epoch=num_epoch,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.02, "wd": 1e-4},
        initializer=mx.init.Normal(0.3),
        eval_metric="rmse",
    )
    return module.score(batches(*unseen), "rmse")[0][1], float(np.std(unseen[2]))


if __name__ == "__main__":
    error, spread = train()
    print(f"error of the unseen ratings: {error:.3f} (their spread is {spread:.3f})")
