"""A policy-gradient agent (REINFORCE, Williams 1992) that walks to the goal of a small grid.

The gradient of the expected return is that of `log p(action) * advantage`: a cross-entropy whose
rows are weighted.

    python examples/policy_gradient.py
"""

import numpy as np

import rsnet as mx

MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


class Walk:
    """Many walks at once on a `size` x `size` grid, from random cells to the corner (0, 0)."""

    def __init__(self, size, walks, seed=0):
        self.size, self.walks = size, walks
        self._random = np.random.RandomState(seed)

    def run(self, policy, steps):
        """States, actions and advantages of all steps, and the share of walks that arrive."""
        place = self._random.randint(0, self.size, (self.walks, 2))
        states, actions, alive, rewards = [], [], [], []
        done = (place == 0).all(axis=1)
        for _ in range(steps):
            states.append(place[:, 0] * self.size + place[:, 1])
            chances = policy(states[-1]).cumsum(axis=1)
            action = (self._random.uniform(size=(self.walks, 1)) > chances).sum(axis=1).clip(0, 3)
            actions.append(action)
            alive.append(~done)
            place = np.where(done[:, None], place, place + MOVES[action]).clip(0, self.size - 1)
            arrived = ~done & (place == 0).all(axis=1)
            rewards.append(arrived - 0.05 * ~done)
            done |= arrived
        returns = np.cumsum(rewards[::-1], axis=0)[::-1]
        alive = np.array(alive)
        mean = (returns * alive).sum(axis=1, keepdims=True) / np.maximum(
            alive.sum(axis=1, keepdims=True), 1
        )
        return np.array(states), np.array(actions), (returns - mean) * alive, done.mean()


def network(cells):
    """Chances of the four moves, and the loss whose gradient moves them."""
    scores = mx.sym.Embedding(mx.sym.Variable("state"), input_dim=cells, output_dim=4, name="table")
    chances = mx.sym.softmax(scores, name="chances")
    taken = mx.sym.pick(mx.sym.log_softmax(scores), mx.sym.Variable("action"), axis=1)
    loss = mx.sym.make_loss(-mx.sym.mean(taken * mx.sym.Variable("advantage")))
    return mx.sym.Group([mx.sym.BlockGrad(chances), loss])


def train(size=5, walks=64, steps=16, rounds=150, seed=0):
    """Trains; returns the share of walks that arrive, of the first and the last ten rounds."""
    world = Walk(size, walks, seed)
    names = ("state", "action", "advantage")
    module = mx.mod.Module(network(size * size), names, None)
    module.bind([(name, (walks * steps,)) for name in names], grad_req="write")
    module.init_params(mx.init.Zero())
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.1})

    def policy(states):
        table = module.get_params()[0]["table_weight"].asnumpy()[states]
        weights = np.exp(table - table.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    shares = []
    for _ in range(rounds):
        *experience, share = world.run(policy, steps)
        arrays = [mx.nd.array(values.reshape(-1)) for values in experience]
        module.forward_backward(mx.io.DataBatch(arrays))
        module.update()
        shares.append(share)
    return np.mean(shares[:10]), np.mean(shares[-10:])


if __name__ == "__main__":
    before, after = train()
    print(f"walks that arrive: {100 * before:.0f} % at first, {100 * after:.0f} % at last")
