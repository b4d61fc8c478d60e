"""Cases of densities, running sums, moments, and of slices replaced by index."""

from cases import ALL, FLOATS, In, case

WIDE = FLOATS[:2]
INTS = ("int32", "int64")

SAMPLES, ROWS = In((2, 3), 0.3, 2), In((2,), 0.5, 1.5)
COUNTS = In((2, 3), 0, 6, "index")
for is_log in (False, True):
    more = {"is_log": is_log, "dtypes": FLOATS}
    case("_random_pdf_uniform", SAMPLES, In((2,), 0, 1), In((2,), 2, 3), **more)
    case("_random_pdf_normal", SAMPLES, ROWS, ROWS, **more)
    case("_random_pdf_normal", In((2, 3, 4), 0.3, 2), In((2, 3)), In((2, 3), 0.5, 1), **more)
    case("_random_pdf_gamma", SAMPLES, ROWS, ROWS, **more)
    case("_random_pdf_exponential", SAMPLES, ROWS, **more)
    case("_random_pdf_poisson", COUNTS, ROWS, **more)
    case("_random_pdf_negative_binomial", COUNTS, ROWS, In((2,), 0.2, 0.8), **more)
    case("_random_pdf_generalized_negative_binomial", COUNTS, ROWS, In((2,), 0.2, 0.8), **more)
    case("_random_pdf_dirichlet", In((4, 3), 0.1, 0.6), In((3,), 0.5, 2), **more)
    case("_random_pdf_dirichlet", In((2, 4, 3), 0.1, 0.6), In((2, 3), 0.5, 2), **more)

case("_np_cumsum", (3, 4), dtypes=ALL)
for axis in (0, 1, -1):
    case("_np_cumsum", (3, 4), axis=axis, dtypes=ALL)
case("_np_cumsum", (2, 3, 4), axis=1, dtype="float64")
case("_np_cumsum", In((5,), 0, 9, "index"), dtype="int64", grad="none", dtypes=WIDE)
case("moments", (3, 4), axes=(0,))
case("moments", (3, 4), axes=(0, 1), keepdims=True)
case("moments", (2, 3, 4), axes=(2, 0))
case("moments", (2, 3, 4), axes=(-2,), keepdims=True)

case("_contrib_sign_ste", In((3, 4), -2, 2, "away"), grad="own")
case("_contrib_round_ste", In((3, 4), -3, 3, "away"), grad="own", dtypes=FLOATS + INTS)
case("_contrib_allclose", (3, 4), (3, 4), grad="none")
case("_contrib_allclose", (3, 4), (3, 4), rtol=0.5, atol=2.0, grad="none")
case("_contrib_index_copy", (5, 3), In((1,), 0, 5, "index"), (1, 3), wrt=(0, 2))
case("_contrib_index_copy", (5,), In((1,), 0, 5, "index"), (1,), wrt=(0, 2))
case("_contrib_index_array", (2, 3), grad="none", dtypes=("float32",))
case("_contrib_index_array", (2, 3, 2), axes=(2, 0), grad="none", dtypes=("float32",))
case("_onehot_encode", In((3,), -1, 5, "index"), (3, 4), grad="none", dtypes=("float32",))
case("fill_element_0index", (3, 4), (3,), In((3,), 0, 4, "index"), grad="none", dtypes=("float32",))

case("_contrib_fft", (2, 6))
case("_contrib_fft", (3, 37), dtypes=WIDE)
case("_contrib_fft", (1,), dtypes=WIDE)
case("_contrib_fft", (2, 3, 8), dtypes=WIDE)
case("_contrib_ifft", (2, 6))
case("_contrib_ifft", (2, 74), dtypes=WIDE)
PLACES, SIGNS = In((1, 5), 0, 4, "index"), In((1, 5), 0, 2, "index")
case("_contrib_count_sketch", (3, 5), PLACES, SIGNS, out_dim=4, wrt=(0,))
case("_contrib_count_sketch", (2, 3, 5), PLACES, SIGNS, out_dim=4, wrt=(0,))
case("_histogram", (3, 50), bin_cnt=7, range=(-0.5, 1.0), grad="zero", dtypes=WIDE)
case("_histogram", In((40,), 0, 9, "index"), bin_cnt=3, range=(0, 6), grad="none", dtypes=WIDE)
case("_zeros_without_dtype", shape=(2, 3), grad="none", dtypes=("float32",))
case("cast_storage", (2, 3), stype="default", dtypes=ALL)
case("_contrib_quantize_asym", In((2, 5), -1, 3), grad="none", dtypes=("float32",))
case("_contrib_quantize_asym", In((2, 5), -1, 3), min_calib_range=-0.5, max_calib_range=2.0,
     grad="none", dtypes=("float32",))  # fmt: skip
case("_contrib_calibrate_entropy", In((41,), 0, 30, "index"), In((42,), -2, 2, "rising"),
     num_quantized_bins=15, grad="none", dtypes=("float32",))  # fmt: skip
case("_contrib_hawkesll", In((2, 3), 0.5, 1.5), In((3,), 0.1, 0.5), In((3,), 0.5, 2),
     In((2, 3), 0, 1), In((2, 4), 0.1, 0.9), In((2, 4), 0, 3, "index", "int32"),
     In((2,), 2, 5, "index"), In((2,), 4, 6), wrt=(0, 1, 2, 3), dtypes=WIDE)  # fmt: skip
case("IdentityAttachKLSparseReg", In((4, 3), 0.1, 0.9), In((3,), 0.2, 0.6), grad="none",
     dtypes=WIDE)  # fmt: skip

for n in (0, 1, 2, 5):
    case("_polygamma", In((3, 4), 0.3 if n < 5 else 1.5, 4), n=n, dtypes=WIDE)
    case("_polygamma", In((5,), -2.7, -2.3), n=n, dtypes=WIDE)
