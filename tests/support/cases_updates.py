"""Cases of updates of many weights, of LAMB and AdamW, and of what they need of all arrays."""

from cases import FLOATS, In, case

WIDE = FLOATS[:2]
W, POSITIVE = (3, 4), In((3, 4), 0.1, 1)
HALF, SINGLE = In(W, dtype="float16"), In(W, dtype="float32")
HALF2, SINGLE2 = In((5,), dtype="float16"), In((5,), dtype="float32")
LATE = {"rescale_grad": 0.5, "clip_gradient": 0.2}
RATES = In((2,), 0.05, 0.2, dtype="float32")

for more in ({}, LATE):
    two = {"num_weights": 2, "grad": "none", **more}
    rates = {"lrs": (0.1, 0.2), "wds": (0.0, 0.01)}
    pairs = (W, W, (5,), (5,))
    mom = (W, W, W, (5,), (5,), (5,))
    mixed = (HALF, HALF, SINGLE, HALF2, HALF2, SINGLE2)
    mixed_mom = (HALF, HALF, SINGLE, SINGLE, HALF2, HALF2, SINGLE2, SINGLE2)
    for name, given, behind in (("multi", rates, ()), ("preloaded_multi", {}, (RATES, RATES))):
        case(f"{name}_sgd_update", *pairs, *behind, dtypes=WIDE, **given, **two)
        case(f"{name}_sgd_mom_update", *mom, *behind, dtypes=WIDE, momentum=0.9, mutates=(2, 5),
             **given, **two)  # fmt: skip
        case(f"{name}_mp_sgd_update", *mixed, *behind, dtypes=("float32",), mutates=(2, 5),
             **given, **two)  # fmt: skip
        case(f"{name}_mp_sgd_mom_update", *mixed_mom, *behind, dtypes=("float32",), momentum=0.9,
             mutates=(2, 3, 6, 7), **given, **two)  # fmt: skip
    mp = {"lr": 0.1, "wd": 0.01, "momentum": 0.9, "grad": "none", "dtypes": ("float32",)}
    case("mp_nag_mom_update", HALF, HALF, SINGLE, SINGLE, mutates=(2, 3), **mp, **more)

    step = {"t": 3, "wd": 0.01, "epsilon": 2**-10, "grad": "none", **more}
    case("lamb_update_phase1", W, W, W, POSITIVE, dtypes=WIDE, mutates=(2, 3), **step)
    case("lamb_update_phase1", W, W, W, POSITIVE, dtypes=WIDE, mutates=(2, 3),
         bias_correction=False, **step)  # fmt: skip
    positive = In(W, 0.1, 1, dtype="float32")
    case("mp_lamb_update_phase1", HALF, HALF, SINGLE, positive, SINGLE, dtypes=("float32",),
         mutates=(2, 3), **step)  # fmt: skip
    lamb = {"learning_rates": (0.1, 0.2), "wds": (0.0, 0.01), "step_count": (1, 4),
            "epsilon": 2**-10, "num_tensors": 2, "grad": "none", **more}  # fmt: skip
    case("_multi_lamb_update", W, W, W, POSITIVE, (5,), (5,), (5,), In((5,), 0.1, 1), dtypes=WIDE,
         mutates=(2, 3, 6, 7), **lamb)  # fmt: skip
    case("_multi_lamb_update", W, W, W, POSITIVE, (5,), (5,), (5,), In((5,), 0.1, 1), dtypes=WIDE,
         mutates=(2, 3, 6, 7), bias_correction=False, lower_bound=0.25, upper_bound=0.75,
         **lamb)  # fmt: skip
    other = In((5,), 0.1, 1, dtype="float32")
    case("_multi_mp_lamb_update", HALF, HALF, SINGLE, positive, SINGLE, HALF2, HALF2, SINGLE2,
         other, SINGLE2, dtypes=("float32",), mutates=(2, 3, 4, 7, 8, 9), **lamb)  # fmt: skip

scalar = In((1,), 0.5, 2)
for more in ({}, {"lower_bound": 0.75, "upper_bound": 1.0}):
    case("lamb_update_phase2", W, W, scalar, scalar, lr=0.1, dtypes=WIDE, grad="none", **more)
    number = In((1,), 0.5, 2, dtype="float32")
    case("mp_lamb_update_phase2", HALF, SINGLE, number, number, SINGLE, lr=0.1, grad="none",
         dtypes=("float32",), mutates=(4,), **more)  # fmt: skip
case("lamb_update_phase2", W, W, In((1,), 0, 1, "index"), scalar, lr=0.1, dtypes=WIDE, grad="none")

for low, high in ((0.4, 0.6), (0.0, 1e-30)):  # a factor that is 0 in effect changes nothing
    factor = In((1,), low, high, "real" if low else "index", dtype="float32")
    for more in ({}, {"clip_gradient": 0.2}):
        step = {"lr": 0.1, "eta": 0.5, "wd": 0.01, "epsilon": 2**-10, "grad": "none", **more}
        many = {"lrs": (0.1, 0.2), "wds": (0.0, 0.01), "etas": (1.0, 0.5), "epsilon": 2**-10,
                "num_weights": 2, "grad": "none", **more}  # fmt: skip
        case("_adamw_update", W, W, W, POSITIVE, factor, dtypes=WIDE, mutates=(2, 3), **step)
        case("_mp_adamw_update", HALF, HALF, SINGLE, positive, SINGLE, factor, mutates=(2, 3, 4),
             dtypes=("float32",), **step)  # fmt: skip
        case("_multi_adamw_update", W, W, W, POSITIVE, (5,), (5,), (5,), In((5,), 0.1, 1), factor,
             dtypes=WIDE, mutates=(2, 3, 6, 7), **many)  # fmt: skip
        case("_multi_mp_adamw_update", HALF, HALF, SINGLE, positive, SINGLE, HALF2, HALF2, SINGLE2,
             other, SINGLE2, factor, dtypes=("float32",), mutates=(2, 3, 4, 7, 8, 9),
             **many)  # fmt: skip
for more in ({}, LATE):
    case("_contrib_group_adagrad_update", (4, 3), (4, 3), In((4, 1), 0.1, 1), lr=0.1,
         dtypes=WIDE, grad="none", mutates=(2,), **more)  # fmt: skip
    case("_contrib_group_adagrad_update", (4, 3, 2), (4, 3, 2), In((4,), 0.1, 1), lr=0.1,
         dtypes=WIDE, grad="none", mutates=(2,), **more)  # fmt: skip
# The first update by small gradients: epsilon under the root is what keeps it small.
case("_contrib_group_adagrad_update", (4, 3), In((4, 3), 1e-4, 2e-3), In((4, 1), 0, 0), lr=0.1,
     dtypes=WIDE, grad="none", mutates=(2,))  # fmt: skip

case("multi_sum_sq", (3, 4), (5,), (1,), num_arrays=3, grad="none")
case("multi_sum_sq", (90, 91), num_arrays=1, grad="none", dtypes=WIDE)
sums = In((4,), 0, 3, "index", dtype=None)
case("multi_lars", In((4,), 0.1, 1), sums, sums, In((4,), 0, 0.1), eta=0.5, eps=0.25,
     rescale_grad=0.5, grad="none")  # fmt: skip
case("all_finite", (3, 4), grad="none")
case("multi_all_finite", (3, 4), (2,), num_arrays=2, grad="none")
case("reset_arrays", (3, 4), (2,), num_arrays=2, grad="none", mutates=(0, 1), dtypes=WIDE)
for narrow in (False, True):
    case("amp_multicast", (3, 4), In((2,), dtype="float64"), num_outputs=2, cast_narrow=narrow,
         wrt=(0, 1), dtypes=WIDE)  # fmt: skip
