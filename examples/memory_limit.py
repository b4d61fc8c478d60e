"""A residual network (He et al., arXiv:1512.03385) bound within a limit of memory.

Activations are computed again in the backward pass (Chen et al., arXiv:1604.06174), as far as the
limit requires; the numbers are the same.

    python examples/memory_limit.py
"""

import numpy as np

import rsnet as mx


def unit(data, filters, stride, name):
    """Two convolutions and a shortcut."""
    layer, shortcut = data, data
    for i, step in ((1, stride), (2, (1, 1))):
        layer = mx.sym.BatchNorm(layer, fix_gamma=False, name=f"{name}_bn{i}")
        layer = mx.sym.Activation(layer, act_type="relu")
        if i == 1 and stride != (1, 1):
            shortcut = mx.sym.Convolution(
                layer, num_filter=filters, kernel=(1, 1), stride=stride, name=f"{name}_short"
            )
        layer = mx.sym.Convolution(
            layer, num_filter=filters, kernel=(3, 3), stride=step, pad=(1, 1), no_bias=True,
            name=f"{name}_conv{i}",
        )  # fmt: skip
    return layer + shortcut


def network(units=3, filters=(16, 32, 64), classes=10):
    """ResNet of 6 * units + 2 layers: ResNet-20 by default."""
    net = mx.sym.Convolution(
        mx.sym.Variable("data"), num_filter=filters[0], kernel=(3, 3), pad=(1, 1), name="first"
    )
    for stage, width in enumerate(filters):
        for i in range(units):
            stride = (2, 2) if stage and i == 0 else (1, 1)
            net = unit(net, width, stride, f"stage{stage}_unit{i}")
    net = mx.sym.Pooling(net, global_pool=True, pool_type="avg", kernel=(1, 1))
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=classes, name="classes")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def step(net, limit, shape):
    """The gradients of one step within a limit, and the bytes of the plan."""
    exe = net.simple_bind(mx.cpu(), memory_limit=limit, data=shape, softmax_label=shape[:1])
    random = np.random.RandomState(0)
    for array in exe.arg_dict.values():
        array[:] = 0.1 * random.normal(size=array.shape)
    exe.arg_dict["softmax_label"][:] = random.randint(0, 10, shape[0])
    exe.forward(is_train=True)
    exe.backward()
    return {k: g.asnumpy() for k, g in exe.grad_dict.items()}, exe.memory_plan().arena_bytes


def compare(units=3, shape=(32, 3, 32, 32), share=0.6):
    """Bytes without a limit and within a share of them; the gradients must agree."""
    net = network(units)
    free, bytes_free = step(net, None, shape)
    limited, bytes_limited = step(net, int(share * bytes_free), shape)
    for name, gradient in free.items():
        np.testing.assert_allclose(limited[name], gradient, rtol=1e-3, atol=1e-5)
    return bytes_free, bytes_limited


if __name__ == "__main__":
    without, within = compare()
    print(f"{without / 1e6:.1f} MB without a limit, {within / 1e6:.1f} MB within one")
