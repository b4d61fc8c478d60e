"""What the cases of `cases.py` and `networks.py` are made of."""

CASES = {}


def case(name, mx, torch):
    """Adds a case: functions of the library and of NumPy's generator that return what to time.

    What is timed may return an array, the same in every package.
    """
    CASES[name] = {"mx": mx, "torch": torch}


def rand(rng, *shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def bound(lib, rng, net, train, **shapes):
    """A bound executor's forward pass, or forward and backward."""
    net = lib.sym.MakeLoss(net) if train else net
    exe = net.simple_bind(ctx=lib.cpu(), grad_req="write" if train else "null", **shapes)
    for array in exe.arg_dict.values():
        array[:] = lib.nd.array(rand(rng, *array.shape) * 0.1)

    def run():
        exe.forward(is_train=train)
        if train:
            exe.backward()
        lib.nd.waitall()

    return run


def module_step(lib, module, data):
    """Forward and backward of a PyTorch module."""
    data.requires_grad_()
    one = lib.ones_like(module(data))

    def run():
        data.grad = None
        module.zero_grad()
        module(data).backward(one)

    return run
