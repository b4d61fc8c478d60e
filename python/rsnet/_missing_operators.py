"""Operators of MXNet 1.9.1 that rsnet does not have, each with the reason, for messages.

docs/from_mxnet.md has the same as a table.
"""

from __future__ import annotations

#: Why, by the names of operators in symbol files and of functions of `mx.nd`.
WHY: dict[str, str] = {
    name: why
    for why, names in {
        "it works on sparse storage, and all arrays of rsnet are dense": """
            _contrib_dgl_adjacency _contrib_dgl_csr_neighbor_non_uniform_sample
            _contrib_dgl_csr_neighbor_uniform_sample _contrib_dgl_graph_compact
            _contrib_dgl_subgraph _contrib_edge_id _contrib_getnnz _sparse_adagrad_update
            _sparse_retain _square_sum
        """,
        "the size of its output depends on the numbers of its input, and graphs are planned by "
        "shapes": "_npi_bincount _npi_unique _npx_nonzero",
        "mx.image.imdecode and mx.image.imread decode images": """
            _cvimdecode _cvimread _imdecode imdecode
        """,
        "recurrent layers compute on floats only": "_contrib_quantized_rnn",
        "it stands for the graph inside of a file's node, which is loaded in its place": """
            _sg_mkldnn_conv _sg_mkldnn_fully_connected _sg_mkldnn_selfatt_qk
            _sg_mkldnn_selfatt_valatt
        """,
        "it is a node of a backward pass, and rsnet makes its own": """
            _NoGradient _broadcast_backward _contrib_backward_gradientmultiplier
            _contrib_backward_hawkesll _contrib_backward_quadratic _npi_backward_ediff1d
            _npi_backward_nan_to_num _npi_backward_polyval _npi_hsplit_backward _split_v2_backward
        """,
        "it calls an object of the process that made it; nd.CachedOp and autograd.Function make "
        "these": "_CachedOp _CachedOpThreadSafe _CustomFunction",
    }.items()
    for name in names.split()
}

#: What the names of operators begin with of which rsnet has a part: those of `mx.np` and `mx.npx`.
_FAMILIES = ("_np_", "_npi_", "_npx_", "_backward_np_", "_backward_npi_")

#: Likewise what namespaces of `mx.nd` and `mx.sym` have beside operators.
_IN_NAMESPACES = {"sparse": frozenset("csr_matrix row_sparse_array".split())}


def why_missing_operator(name: str, shown: str | None = None) -> str | None:
    """A message if MXNet has an operator of this name that rsnet does not have; it may be `shown`
    under another one.
    """
    if name not in WHY and not name.startswith(_FAMILIES):
        return None
    text = f"MXNet's `{shown or name}` is not in rsnet yet"
    return f"{text}: {WHY[name]}" if name in WHY else text


def why_missing_in(namespace: str, name: str) -> str | None:
    """As :func:`why_missing_operator` for a function of a namespace, such as ``"contrib"``."""
    shown = f"{namespace}.{name}"
    if name in _IN_NAMESPACES.get(namespace, ()):
        return f"MXNet's `{shown}` is not in rsnet yet: {WHY['_square_sum']}"
    inside = namespace in ("_internal", "op")
    operator = name if inside else f"_{namespace}_{name}"
    return why_missing_operator(operator, None if inside else shown)
