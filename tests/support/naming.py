"""The function of an operator, in rsnet and in MXNet."""

# Where MXNet has the operators of its NumPy interface, by prefix.
NUMPY = {"_np_": "numpy", "_npi_": "numpy._internal", "_npx_": "numpy_extension"}


def is_numpy(op):
    """Is it an operator of MXNet's NumPy interface?"""
    return op.startswith(tuple(NUMPY))


def function(module, op):
    """The function of operator `op` in `mx.nd` or `mx.sym`."""
    if is_numpy(op) and not hasattr(module._internal, op):
        prefix = op[: op.index("_", 1) + 1]
        for part in NUMPY[prefix].split("."):
            module = getattr(module, part)
        return getattr(module, op.removeprefix(prefix))
    for prefix, place in (("_contrib_", "contrib"), ("_linalg_", "linalg"), ("_image_", "image")):
        if op.startswith(prefix):
            return getattr(getattr(module, place), op.removeprefix(prefix))
    if op.startswith("_random_") and op.endswith("_like"):
        return getattr(module.random, op.removeprefix("_random_"))
    return getattr(module._internal if op.startswith("_") else module.op, op)
