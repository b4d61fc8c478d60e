"""Cases of layers, loss heads, products and optimizer updates; see `cases.py`."""

from cases import FLOATS, In, case

# Products
case("dot", (3, 4), (4, 2), dtypes=FLOATS)
case("dot", (4, 3), (4, 2), transpose_a=True)
case("dot", (3, 4), (2, 4), transpose_b=True)
case("dot", (4, 3), (2, 4), transpose_a=True, transpose_b=True)
case("dot", (5,), (5,))
case("dot", (2, 3, 4), (4, 5))
case("dot", (3, 4), (4,))
case("dot", (1, 1), (1, 1))
case("dot", (40, 50), (50, 33), dtypes=("float32", "float64"))
case("dot", (0, 4), (4, 2), grad="none")
case("batch_dot", (2, 3, 4), (2, 4, 5))
case("batch_dot", (2, 4, 3), (2, 4, 5), transpose_a=True)
case("batch_dot", (2, 3, 4), (2, 5, 4), transpose_b=True)
case("batch_dot", (1, 1, 1), (1, 1, 1))

# Layers
case("FullyConnected", (3, 4), (5, 4), (5,), num_hidden=5)
case("FullyConnected", (3, 4), (5, 4), num_hidden=5, no_bias=True)
case("FullyConnected", (2, 3, 4), (5, 12), (5,), num_hidden=5)
case("FullyConnected", (2, 3, 4), (5, 4), (5,), num_hidden=5, flatten=False)
case("FullyConnected", (1, 1), (1, 1), (1,), num_hidden=1)
case("FullyConnected", (33, 20), (17, 20), (17,), num_hidden=17, dtypes=("float32", "float64"))

for shape, weight, params in [
    ((2, 3, 5, 6), (4, 3, 3, 3), {"kernel": (3, 3), "num_filter": 4}),
    ((2, 3, 5, 6), (4, 3, 3, 2), {"kernel": (3, 2), "num_filter": 4, "pad": (1, 0), "stride": (2,
    1)}),
    ((1, 4, 5, 5), (6, 2, 3, 3), {"kernel": (3, 3), "num_filter": 6, "num_group": 2, "pad": (1,
    1)}),
    ((2, 4, 5, 5), (4, 1, 3, 3), {"kernel": (3, 3), "num_filter": 4, "num_group": 4, "pad": (1,
    1)}), ((1, 2, 7, 7), (3, 2, 3, 3), {"kernel": (3, 3), "num_filter": 3, "dilate": (2, 2)}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {"kernel": (1, 1), "num_filter": 5}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {"kernel": (1, 1), "num_filter": 5, "stride": (2, 2)}),
    ((2, 3, 7), (4, 3, 3), {"kernel": (3,), "num_filter": 4, "pad": (1,)}),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"kernel": (2, 2, 2), "num_filter": 2}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {"kernel": (1, 1), "num_filter": 1}),
]:  # fmt: skip
    case("Convolution", shape, weight, (weight[0],), **params)
case("Convolution", (2, 3, 5, 5), (4, 3, 3, 3), kernel=(3, 3), num_filter=4, no_bias=True)
for shape, weight, params in [
    ((1, 3, 3, 4), (3, 2, 3, 3), {"kernel": (3, 3), "num_filter": 2}),
    ((2, 2, 3, 3), (2, 2, 4, 4), {"kernel": (4, 4), "num_filter": 2, "stride": (2, 2), "pad": (1,
    1)}), ((1, 2, 3, 3), (2, 1, 3, 3), {"kernel": (3, 3), "num_filter": 2, "num_group": 2,
                                  "stride": (2, 2), "adj": (1, 1), "pad": (1, 1)}),
]:  # fmt: skip
    case("Deconvolution", shape, weight, **params)
case("Deconvolution", (1, 2, 4, 3), (2, 3, 3, 3), kernel=(3, 3), num_filter=3, dilate=(2, 2))
case("Deconvolution", (1, 2, 3, 3), (2, 2, 3, 3), (2,), kernel=(3, 3), num_filter=2, no_bias=False)

for pool in ("max", "avg", "sum"):
    for params in (
        {"kernel": (2, 2), "stride": (2, 2)},
        {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
        {"kernel": (3, 2), "stride": (2, 2), "pooling_convention": "full"},
        {"global_pool": True, "kernel": (1, 1)},
    ):
        case("Pooling", In((2, 2, 6, 7), kind="distinct"), pool_type=pool, **params)
    case("Pooling", In((2, 2, 6), kind="distinct"), pool_type=pool, kernel=(3,), stride=(2,))
    case("Pooling", In((1, 2, 4, 4, 4), kind="distinct"), pool_type=pool, kernel=(2, 2, 2),
         stride=(2, 2, 2))  # fmt: skip
case("Pooling", (2, 2, 5, 5), pool_type="avg", kernel=(3, 3), pad=(1, 1), count_include_pad=False)
case("Pooling", (1, 2, 5, 5), pool_type="max", kernel=(1, 1), stride=(3, 3),
     pooling_convention="full", grad="none")  # fmt: skip
case("Pooling", In((2, 2, 4, 4), 0.2, 1), pool_type="lp", p_value=2, kernel=(2, 2), stride=(2, 2))

for act in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    case("Activation", In((3, 4), -3, 3, "away"), act_type=act)
case("Activation", (0, 4), act_type="relu")
for act in ("leaky", "elu", "selu", "gelu"):
    case("LeakyReLU", In((3, 4), -3, 3, "away"), act_type=act)
case("LeakyReLU", In((3, 4), -3, 3, "away"), act_type="leaky", slope=0.1)
case("LeakyReLU", In((2, 3, 4), -3, 3, "away"), In((3,), 0.1, 0.5), act_type="prelu")

for op in ("softmax", "log_softmax", "softmin"):
    case(op, In((3, 4), -3, 3))
    case(op, In((2, 3, 4), -3, 3), axis=1)
    case(op, In((3, 4), -3, 3), temperature=2.0)
    case(op, In((1, 1), -3, 3))
case("softmax", In((3, 4), -3, 3), In((3,), 1, 5, "index", "int32"), use_length=True, axis=-1)
case("SoftmaxActivation", In((3, 4), -3, 3))
case("SoftmaxActivation", In((2, 3, 4), -3, 3), mode="channel")
case("SoftmaxActivation", In((2, 3, 4), -3, 3))

# Normalization. Statistics are compared by tests of their own.
for shape, axis in [((4, 3), 1), ((4, 3, 2, 2), 1), ((4, 2, 3), -1), ((6, 1), 1)]:
    n = shape[axis]
    stats = (In((n,), -0.2, 0.2), In((n,), 0.5, 1.5))
    single = (In((n,), 0.5, 1.5, dtype="float32"), In((n,), dtype="float32"))
    moving = (In((n,), -0.2, 0.2, dtype="float32"), In((n,), 0.5, 1.5, dtype="float32"))
    case("BatchNorm", shape, *single, *moving, axis=axis, fix_gamma=False, dtypes=("float16",),
         grad="none")  # fmt: skip
    for fix in (True, False):
        case("BatchNorm", shape, In((n,), 0.5, 1.5), (n,), *stats, fix_gamma=fix, axis=axis,
        eps=1e-2,
             wrt=(0, 2) if fix else (0, 1, 2), dtypes=FLOATS[:2])  # fmt: skip
case("BatchNorm", (4, 3, 2), In((3,), 0.5, 1.5), (3,), In((3,), -0.2, 0.2), In((3,), 0.5, 1.5),
     use_global_stats=True, fix_gamma=False, wrt=(0, 1, 2), dtypes=FLOATS[:2])  # fmt: skip
case("LayerNorm", (3, 5), In((5,), 0.5, 1.5), (5,))
case("LayerNorm", (3, 5, 2), In((5,), 0.5, 1.5), (5,), axis=1)
case("InstanceNorm", (2, 3, 4, 2), In((3,), 0.5, 1.5), (3,))
case("GroupNorm", (2, 4, 3), In((2,), 0.5, 1.5), (2,), num_groups=2)
for mode in ("instance", "channel", "spatial"):
    case("L2Normalization", In((2, 3, 4), 0.2, 1), mode=mode)
case("LRN", (2, 5, 3, 3), nsize=3, alpha=0.1)

# Loss heads
labels = In((4,), 0, 3, "index")
case("SoftmaxOutput", In((4, 3), -2, 2), labels, grad="own", wrt=(0, 1))
case("SoftmaxOutput", In((4, 3), -2, 2), In((4, 3), 0, 1), grad="own")
for norm in ("null", "batch", "valid"):
    case("SoftmaxOutput", In((4, 3), -2, 2), labels, grad="own", grad_scale=0.5, normalization=norm,
         use_ignore=True, ignore_label=1.0)  # fmt: skip
case(
    "SoftmaxOutput", In((2, 3, 4), -2, 2), In((2, 4), 0, 3, "index"), grad="own", multi_output=True
)
case(
    "SoftmaxOutput",
    In((2, 4, 3), -2, 2),
    In((2, 4), 0, 3, "index"),
    grad="own",
    preserve_shape=True,
)
case("SoftmaxOutput", In((4, 3), -2, 2), labels, grad="own", smooth_alpha=0.1)
case("SoftmaxOutput", In((4, 3), -2, 2), labels, grad="own", out_grad=True)
for head in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
    case(head, (4, 3), In((4, 3), 0, 1), grad="own")
    case(head, (4, 1), In((4,), 0, 1), grad="own", grad_scale=3.0)
case("SVMOutput", (4, 3), labels, grad="own")
case("SVMOutput", (4, 3), labels, grad="own", use_linear=True, regularization_coefficient=0.5)
case("SVMOutput", (2, 3, 4), In((2, 3), 0, 4, "index"), grad="own", margin=0.5)
case("softmax_cross_entropy", In((4, 3), -2, 2), labels, dtypes=("float32", "float64"))

# Sequences and tables
case("Embedding", In((2, 3), 0, 5, "index"), (5, 4), input_dim=5, output_dim=4)
case("Embedding", In((4,), -2, 9, "index"), (5, 2), input_dim=5, output_dim=2, dtypes=FLOATS[:2])
lengths = In((3,), 1, 5, "index")
case("SequenceMask", (4, 3, 2), lengths, use_sequence_length=True, value=-1.0)
case("SequenceMask", (3, 4, 2), lengths, use_sequence_length=True, axis=1)
case("SequenceLast", (4, 3, 2), lengths, use_sequence_length=True)
case("SequenceLast", (4, 3, 2))
case("SequenceReverse", (4, 3, 2), lengths, use_sequence_length=True)
case("SequenceReverse", (4, 3, 2))
case("UpSampling", (2, 3, 2, 2), scale=2, sample_type="nearest", num_args=1)
for mode, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1)):
    size = gates * 3 * (2 + 3 + 2)
    states = [(1, 2, 3)] * (2 if mode == "lstm" else 1)
    case("RNN", (4, 2, 2), In((size,), -0.5, 0.5), *states, state_size=3, num_layers=1, mode=mode,
         state_outputs=True, dtypes=("float32", "float64"))  # fmt: skip

# Updates: the weight and its states
W, G, POSITIVE = (3, 4), (3, 4), In((3, 4), 0.1, 1)
for params in (
    {"lr": 0.1, "dtypes": FLOATS[:2]},
    {"lr": 0.1, "wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.2, "dtypes": FLOATS[:2]},
):
    case("sgd_update", W, G, grad="none", **params)
    case("sgd_mom_update", W, G, (3, 4), grad="none", momentum=0.9, mutates=(2,), **params)
    half, copy, dtypes = In(W, dtype="float16"), In(W, dtype="float32"), ("float32",)
    mixed = {**params, "grad": "none", "dtypes": dtypes}
    case("mp_sgd_update", half, half, copy, mutates=(2,), **mixed)
    case("mp_sgd_mom_update", half, half, copy, copy, momentum=0.9, mutates=(2, 3), **mixed)
    case("nag_mom_update", W, G, (3, 4), grad="none", momentum=0.9, mutates=(2,), **params)
    case("signsgd_update", W, G, grad="none", **params)
    case("signsgd_update", W, G, grad="none", **params | {"clip_gradient": 0.0})
    case("signum_update", W, G, (3, 4), grad="none", momentum=0.9, mutates=(2,), **params)
    case("adam_update", W, G, (3, 4), POSITIVE, grad="none", mutates=(2, 3), **params)
    case("rmsprop_update", W, G, POSITIVE, grad="none", mutates=(2,), **params)
    case("rmspropalex_update", W, G, In((3, 4), 0.5, 1), In((3, 4), -0.2, 0.2), (3, 4), grad="none",
         mutates=(2, 3, 4), **params)  # fmt: skip
    case("ftrl_update", W, G, (3, 4), POSITIVE, grad="none", mutates=(2, 3), **params)
for params in ({"t": 1}, {"t": 7, "wd": 0.01, "rescale_grad": 0.5, "clip_grad": 0.2}):
    case("ftml_update", W, G, POSITIVE, POSITIVE, (3, 4), lr=0.125, beta1=0.5, beta2=0.9375,
         grad="none", mutates=(2, 3, 4),
         dtypes=FLOATS[:2], **params)  # fmt: skip
case("CTCLoss", (5, 2, 4), In((2, 2), 1, 4, "index"), dtypes=FLOATS[:2], wrt=(0,))
case(
    "CTCLoss", (5, 2, 4), In((2, 2), 0, 3, "index"), blank_label="last", dtypes=FLOATS[:2], wrt=(0,)
)
case(  # labels that are the blank, too
    "CTCLoss", (6, 2, 4), In((2, 3), 2, 4, "index"), blank_label="last", dtypes=FLOATS[:2], wrt=(0,)
)
rois = In((3, 5), 0, 2, "index")
case("ROIPooling", In((2, 2, 6, 6), kind="distinct"), rois, pooled_size=(2, 2), spatial_scale=1.0,
     dtypes=FLOATS[:2])  # fmt: skip

# Operators of the first versions
v1_stats = (In((3,), -0.2, 0.2), In((3,), 0.5, 1.5))
case("BatchNorm_v1", (4, 3, 2, 2), In((3,), 0.5, 1.5), (3,), *v1_stats,
     fix_gamma=False, wrt=(0, 1, 2), dtypes=FLOATS[:2])  # fmt: skip
case("Convolution_v1", (2, 3, 5, 6), (4, 3, 3, 3), (4,), kernel=(3, 3), num_filter=4)
for params in (
    {"stride": (2, 2)},
    {"pad": (1, 1)},
    {"pooling_convention": "full", "stride": (2, 3)},
):
    case("_pooling_at_max", (2, 2, 6, 7), In((2, 2, 6, 7), kind="distinct"), grad="none",
         kernel=(3, 3), **params)  # fmt: skip
case("_pooling_at_max", (2, 5, 4, 3), In((2, 5, 4, 3), kind="distinct"), grad="none",
     global_pool=True, layout="NHWC")  # fmt: skip
case("Pooling_v1", In((2, 2, 6, 7), kind="distinct"), kernel=(2, 2), stride=(2, 2))
case("Pooling_v1", (2, 2, 6, 6), kernel=(3, 3), stride=(2, 2), pool_type="avg", pad=(1, 1),
     pooling_convention="full")  # fmt: skip

# Products of attention
for heads in (1, 2):
    prefix, count = "_contrib_interleaved_matmul_", 2 * heads
    case(f"{prefix}selfatt_qk", (3, 2, 3 * 4 * heads), heads=heads)
    case(f"{prefix}selfatt_valatt", (3, 2, 3 * 4 * heads), (count, 3, 3), heads=heads)
    case(f"{prefix}encdec_qk", (4, 2, 3 * heads), (5, 2, 2 * 3 * heads), heads=heads)
    case(f"{prefix}encdec_valatt", (5, 2, 2 * 3 * heads), (count, 4, 5), heads=heads)
