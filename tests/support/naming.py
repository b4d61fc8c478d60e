"""The function of an operator, in rsnet and in MXNet."""


def function(module, op):
    """The function of operator `op` in `mx.nd` or `mx.sym`."""
    for prefix, place in (("_contrib_", "contrib"), ("_linalg_", "linalg"), ("_image_", "image")):
        if op.startswith(prefix):
            return getattr(getattr(module, place), op.removeprefix(prefix))
    if op.startswith("_random_") and op.endswith("_like"):
        return getattr(module.random, op.removeprefix("_random_"))
    return getattr(module._internal if op.startswith("_") else module.op, op)
