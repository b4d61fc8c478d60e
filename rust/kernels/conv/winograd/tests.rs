//! The transformed convolution against the scalar reference, and its documented error bound.

use super::regions::{Region, Regions};
use super::*;
use crate::dtype::Element;
use crate::fork_join::tests::in_team;
use crate::kernels::conv::tests::{naive, negated, with_output};
use crate::kernels::kept::Kept;
use crate::kernels::naive::{close, noise};
use crate::kernels::real::Real;
use proptest::prelude::*;

fn square(batch: usize, channels: [usize; 2], size: [usize; 2], pad: [usize; 2]) -> Option<Conv> {
    filter(3, 1, (batch, channels, size, pad))
}

/// A convolution of volumes whose filters are square on the last axes, and have other taps on the
/// first.
fn volume(
    [depth, taps, pad]: [usize; 3],
    (kernel, stride): (usize, usize),
    extents: (usize, [usize; 2], [usize; 2], [usize; 2]),
) -> Option<Conv> {
    let mut conv = filter(kernel, stride, extents)?;
    (conv.input[0], conv.kernel[0], conv.pad[0]) = (depth, taps, pad);
    with_output(conv)
}

/// A convolution with a square filter.
fn filter(
    kernel: usize,
    stride: usize,
    (batch, channels, size, pad): (usize, [usize; 2], [usize; 2], [usize; 2]),
) -> Option<Conv> {
    with_output(Conv {
        batch,
        groups: 1,
        in_c: channels[0],
        out_c: channels[1],
        input: [1, size[0], size[1]],
        kernel: [1, kernel, kernel],
        output: [0; 3],
        stride: [1, stride, stride],
        pad: [0, pad[0], pad[1]],
        dilate: [1; 3],
    })
}

/// A convolution whose filters have taps along one axis, and with it along the first if that has
/// `depth` taps.
fn line(
    (axis, taps, pad): (usize, usize, usize),
    depth: usize,
    (batch, channels, input): (usize, [usize; 2], [usize; 3]),
) -> Option<Conv> {
    let (mut kernel, mut pads) = ([depth, 1, 1], [depth / 2, 0, 0]);
    (kernel[axis], pads[axis]) = (taps, pad);
    let flat = square(batch, channels, [3, 3], [0, 0])?;
    with_output(Conv { input, kernel, pad: pads, ..flat })
}

/// Random `(x, w, dy)`.
fn operands(conv: &Conv, seed: u64) -> [Vec<f64>; 3] {
    let sizes = [
        conv.batch * conv.in_c * conv.in_size(),
        conv.out_c * conv.depth(),
        conv.batch * conv.out_c * conv.out_size(),
    ];
    std::array::from_fn(|i| noise(sizes[i], seed ^ i as u64))
}

/// Values that can be compared, NaN among them.
fn bits<T: Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|x| Element::to_f64(*x).to_bits()).collect()
}

/// `(y, dx, dw)` without bias.
fn transformed<T: Real>(conv: &Conv, x: &[T], w: &[T], dy: &[T]) -> [Vec<T>; 3] {
    let geometry = Geometry::of(conv).unwrap();
    let [mut y, mut dx, mut dw] = [dy, x, w].map(|like| vec![T::of(9.0); like.len()]);
    // SAFETY: the buffers have the extents of the convolution.
    unsafe {
        negated(y.as_mut_ptr(), y.len(), |done| {
            forward(&geometry, x.as_ptr(), w.as_ptr(), None, (y.as_mut_ptr(), Some(done)), None);
        });
        let kept = Kept::default();
        for _ in 0..if conv.batch == 1 { 3 } else { 0 } {
            let (mut again, keeper) = (vec![T::of(9.0); y.len()], Keeper::new(&kept, [7; 4]));
            let to = (again.as_mut_ptr(), None);
            forward(&geometry, x.as_ptr(), w.as_ptr(), None, to, Some(keeper));
            assert_eq!(bits(&again), bits(&y), "kept filters change the outputs of {conv:?}");
        }
        backward_data(&geometry, dy.as_ptr(), w.as_ptr(), dx.as_mut_ptr());
        backward_weight(&geometry, x.as_ptr(), dy.as_ptr(), dw.as_mut_ptr());
    }
    [y, dx, dw]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn winograd_matches_naive(
        batch in 1usize..4, in_c in 1usize..36, out_c in 1usize..36, height in 1usize..14,
        width in 1usize..14, pad in [0usize..3, 0usize..3],
        (kernel, stride) in (3usize..9, 1usize..3), dilate in [1usize..5, 1usize..5], seed: u64,
    ) {
        let extents = (batch, [in_c, out_c], [height, width], pad);
        let conv = filter(kernel, stride, extents).map(|conv| match seed % 2 {
            0 => Conv { dilate: [1, dilate[0], dilate[1]], ..conv },
            _ => conv,
        });
        let conv = conv.and_then(with_output).filter(|c| Geometry::of(c).is_some());
        let Some(conv) = conv else { return Ok(()) };
        let [x, w, dy] = operands(&conv, seed);
        let want = naive(&conv, &x, &w, &dy);
        for (got, want) in transformed(&conv, &x, &w, &dy).iter().zip(&want) {
            prop_assert!(close(got, want, 1e-11), "{conv:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn volumes_match_naive(
        axis in [1usize..7, 1usize..5, 0usize..4],
        (batch, in_c, out_c) in (1usize..4, 1usize..36, 1usize..36), height in 1usize..14,
        width in 1usize..14, pad in [0usize..3, 0usize..3],
        (kernel, stride) in (2usize..8, 1usize..3), seed: u64,
    ) {
        let conv = volume(axis, (kernel, stride), (batch, [in_c, out_c], [height, width], pad));
        let Some(conv) = conv.filter(|c| Geometry::of(c).is_some()) else { return Ok(()) };
        let [x, w, dy] = operands(&conv, seed);
        let want = naive(&conv, &x, &w, &dy);
        for (got, want) in transformed(&conv, &x, &w, &dy).iter().zip(&want) {
            prop_assert!(close(got, want, 1e-11), "{conv:?}");
        }
    }

    #[test]
    fn filters_along_one_axis_match_naive(
        (axis, taps, pad) in (0usize..3, 3usize..6, 0usize..5), depth in 0usize..4,
        extents in (1usize..4, [1usize..36, 1usize..36], [1usize..12, 1usize..12, 1usize..12]),
        wide in 1usize..90, dilate in 1usize..9, seed: u64,
    ) {
        let (batch, channels, mut input) = extents;
        input[1 + seed as usize % 2] = wide;
        let conv = line((axis, taps, pad), depth.max(1), (batch, channels, input));
        let conv = conv.map(|mut conv| {
            conv.dilate[axis] = dilate;
            conv
        });
        let conv = conv.and_then(with_output).filter(|c| Geometry::of(c).is_some());
        let Some(conv) = conv else { return Ok(()) };
        let [x, w, dy] = operands(&conv, seed);
        let want = naive(&conv, &x, &w, &dy);
        for (got, want) in transformed(&conv, &x, &w, &dy).iter().zip(&want) {
            prop_assert!(close(got, want, 1e-11), "{conv:?}");
        }
    }

    /// The input tiles of a region are those that its output tiles read.
    #[test]
    fn each_tile_is_in_one_region(
        axis in [1usize..9, 1usize..4, 0usize..3], batch in 1usize..5,
        size in [1usize..40, 1usize..40], most in 1usize..200, shape in 0usize..3,
        dilate in [1usize..5, 1usize..5],
    ) {
        let Some(conv) = volume(axis, (3, 1), (batch, [1, 1], size, [1, 1])) else { return Ok(()) };
        let conv = match shape {
            0 => Some(conv),
            shape => line((shape, 3, 1), axis[1], (batch, [1, 1], conv.input)),
        };
        let conv = conv.map(|conv| Conv { dilate: [1, dilate[0], dilate[1]], ..conv });
        let conv = conv.and_then(with_output);
        let Some(geometry) = conv.and_then(|conv| Geometry::of(&conv)) else { return Ok(()) };
        let regions = Regions::new(&geometry, most);
        let [rows, columns] = geometry.tiles();
        let mut seen = vec![0; geometry.slices() * rows * columns];
        let largest = regions.largest();
        for region in (0..regions.count()).map(|i| regions.at(i)) {
            prop_assert!(region.tiles() <= largest.tiles());
            prop_assert!(region.tiles_read() <= largest.tiles_read());
            // Regions have whole blocks of tiles that lie between one another.
            let [down, across] = geometry.dilate;
            prop_assert!(region.rows.start.is_multiple_of(down));
            prop_assert!(region.columns.start.is_multiple_of(across));
            for (i, slice) in region.slices.clone().enumerate() {
                for row in region.rows.clone() {
                    let first = (slice * rows + row) * columns;
                    region.columns.clone().for_each(|column| seen[first + column] += 1);
                }
                for tap in 0..region.taps {
                    let [got, want] = [
                        region.read_at(&geometry, i + tap, 0),
                        geometry.read_at(slice, tap, 0),
                    ];
                    prop_assert_eq!(got, want);
                }
            }
        }
        prop_assert!(seen.iter().all(|n| *n == 1));
        let limit = if region_is_least(&geometry, &largest) { usize::MAX } else { most };
        prop_assert!(largest.tiles_read() <= limit);
    }
}

/// Whether a region has one block of tiles of one output slice.
fn region_is_least(geometry: &Geometry, region: &Region) -> bool {
    let [down, across] = geometry.dilate;
    region.slices.len() == 1 && region.rows.len() <= down && region.columns.len() <= across
}

/// Positions that one region does not hold: they are split by rows, by columns and by slices.
#[test]
fn lines_in_several_regions_match_naive() {
    for (axis, depth, input) in [
        (0, 1, [9, 50, 41]),
        (0, 1, [5, 1, 1700]),
        (1, 1, [2, 70, 31]),
        (1, 3, [4, 40, 19]),
        (2, 1, [1, 1, 2500]),
        (2, 1, [3, 130, 9]),
        (2, 3, [3, 9, 90]),
    ] {
        let conv = line((axis, 3, 1), depth, (1, [17, 19], input)).unwrap();
        let [x, w, dy] = operands(&conv, 1);
        let want = naive(&conv, &x, &w, &dy);
        for (got, want) in transformed(&conv, &x, &w, &dy).iter().zip(&want) {
            assert!(close(got, want, 1e-11), "{conv:?}");
        }
    }
}

/// Tiles between tiles, in several regions, rounds and tasks; along the first axis, too.
#[test]
fn dilated_filters_match_naive() {
    let square = |dilate: [usize; 2], size| {
        let conv = filter(3, 1, (1, [5, 3], size, dilate))?;
        with_output(Conv { dilate: [1, dilate[0], dilate[1]], ..conv })
    };
    let line = |axis: usize, dilate: usize, input| {
        let mut conv = line((axis, 3, dilate), 1, (1, [3, 5], input))?;
        conv.dilate[axis] = dilate;
        with_output(conv)
    };
    let squares = [square([2, 2], [50, 47]), square([3, 5], [41, 33]), square([12, 12], [29, 30])];
    let lines = [line(0, 2, [23, 50, 3]), line(1, 7, [2, 61, 31]), line(2, 300, [1, 1, 2500])];
    for conv in squares.into_iter().chain(lines) {
        check_runs(conv);
        check_bias(&conv.unwrap());
    }
}

/// Few tiles of many channels: filters are transformed, and gradients of filters are multiplied, in
/// runs of input channels.
#[test]
fn runs_of_channels_match_naive() {
    for channels in [[70, 5], [17, 130]] {
        for (kernel, stride, size) in [(3, 1, [7, 5]), (5, 1, [3, 4]), (7, 2, [9, 4])] {
            check_runs(filter(kernel, stride, (1, channels, size, [kernel / 2; 2])));
        }
        check_runs(volume([2, 3, 1], (3, 1), (2, channels, [3, 5], [1, 1])));
        for axis in 0..3 {
            check_runs(line((axis, 3, 1), 1, (2, channels, [5, 3, 4])));
        }
    }
    check_runs(filter(3, 1, (1, [130, 40], [6, 5], [1, 1])));
}

fn check_runs(conv: Option<Conv>) {
    let conv = conv.unwrap();
    let [x, w, dy] = operands(&conv, 8);
    let want = naive(&conv, &x, &w, &dy);
    for (got, want) in transformed(&conv, &x, &w, &dy).iter().zip(&want) {
        assert!(close(got, want, 1e-11), "{conv:?}");
    }
}

#[test]
fn columns_that_no_output_reads_are_skipped() {
    let conv = filter(8, 2, (1, [1, 1], [4, 13], [2, 0])).unwrap();
    let [x, w, dy] = operands(&conv, 0);
    let want = naive(&conv, &x, &w, &dy);
    for (got, want) in transformed(&conv, &x, &w, &dy).iter().zip(&want) {
        assert!(close(got, want, 1e-11), "{got:?}, expected {want:?}");
    }
}

#[test]
fn outputs_of_padding_alone_are_zeros() {
    let squares = [(3, 1), (7, 2)]
        .map(|(kernel, stride)| filter(kernel, stride, (2, [3, 5], [0, 0], [kernel - 1; 2])));
    let lines = [(0, [0, 3, 5]), (1, [3, 0, 5]), (2, [3, 5, 0])]
        .map(|(axis, input)| line((axis, 3, 2), 1, (2, [3, 5], input)));
    for conv in squares.into_iter().chain(lines).flatten() {
        assert!(Geometry::of(&conv).is_some());
        let [x, w, dy] = operands(&conv, 4);
        let [y, dx, dw] = transformed(&conv, &x, &w, &dy);
        assert!(dx.is_empty() && y.into_iter().chain(dw).all(|value| value == 0.0), "{conv:?}");
    }
}

#[test]
fn a_bias_is_added_to_every_output() {
    check_bias(&square(2, [3, 21], [6, 5], [1, 1]).unwrap());
    for axis in 0..3 {
        check_bias(&line((axis, 3, 1), 1, (2, [3, 21], [4, 6, 5])).unwrap());
    }
}

fn check_bias(conv: &Conv) {
    let [x, w, dy] = operands(conv, 5);
    let bias = noise(conv.out_c, 6);
    let (geometry, mut y) = (Geometry::of(conv).unwrap(), dy.clone());
    let to = (y.as_mut_ptr(), None);
    // SAFETY: the buffers have the extents of the convolution.
    unsafe { forward(&geometry, x.as_ptr(), w.as_ptr(), Some(bias.as_ptr()), to, None) };
    let [mut want, ..] = naive(conv, &x, &w, &dy);
    for (i, y) in want.iter_mut().enumerate() {
        *y += bias[i / conv.out_size() % conv.out_c];
    }
    assert!(close(&y, &want, 1e-11), "{conv:?}");
}

#[test]
fn errors_stay_below_the_bound() {
    check_errors(&square(2, [64, 32], [14, 14], [1, 1]).unwrap());
    let dilated = square(1, [32, 16], [14, 14], [2, 2]);
    let dilated = dilated.map(|conv| Conv { dilate: [1, 2, 2], ..conv }).and_then(with_output);
    check_errors(&dilated.unwrap());
    check_errors(&volume([4, 3, 1], (3, 1), (1, [16, 16], [14, 14], [1, 1])).unwrap());
    for (kernel, stride) in [(4, 1), (5, 1), (7, 2)] {
        let pad = [kernel / 2; 2];
        check_errors(&filter(kernel, stride, (1, [16, 16], [14, 14], pad)).unwrap());
    }
    for (axis, taps) in [(0, 3), (1, 3), (2, 3), (1, 4), (2, 5)] {
        check_errors(&line((axis, taps, taps / 2), 1, (2, [64, 32], [8, 9, 10])).unwrap());
    }
}

/// A value that is much larger than the others of its tile leaves its own errors there.
#[test]
fn errors_of_large_values_stay_in_proportion() {
    let conv = square(1, [16, 8], [12, 12], [1, 1]).unwrap();
    let [x, w, dy] = operands(&conv, 2).map(|v| v.iter().map(|x| *x as f32).collect::<Vec<_>>());
    for large in [1e2, 1e5] {
        let mut x = x.clone();
        x[3 * 144 + 5 * 12 + 5] = large;
        let [x64, w64, dy64] =
            [&x, &w, &dy].map(|v| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        let [want, ..] = naive(&conv, &x64, &w64, &dy64);
        let [got, ..] = transformed(&conv, &x, &w, &dy);
        let most = want.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
        for (got, want) in got.iter().zip(&want) {
            assert!((f64::from(*got) - want).abs() <= 4e-6 * most, "{got}, expected {want}");
        }
    }
}

fn check_errors(conv: &Conv) {
    let exact = operands(conv, 11);
    let single = exact.clone().map(|v| v.iter().map(|x| *x as f32).collect::<Vec<_>>());
    let [x, w, dy] = single.clone().map(|v| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let want = naive(conv, &x, &w, &dy);
    let [x, w, dy] = [x, w, dy].map(|v| v.iter().map(|x| x.abs()).collect::<Vec<_>>());
    let sizes = naive(conv, &x, &w, &dy);
    let got = transformed(conv, &single[0], &single[1], &single[2]);
    for ((got, want), sizes) in got.iter().zip(&want).zip(&sizes) {
        for ((got, want), size) in got.iter().zip(want).zip(sizes) {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 4e-6 * size, "{error} of {size}, {conv:?}");
        }
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let extents = (3, [40, 24], [19, 13], [1, 1]);
    let flat = [(3, 1), (7, 2)].map(|(kernel, stride)| filter(kernel, stride, extents));
    let lines = (0..3).map(|axis| line((axis, 3, 1), 1, (3, [40, 24], [9, 19, 23])));
    let long = line((2, 3, 1), 1, (1, [40, 24], [1, 1, 2999]));
    let dilated = flat[0].map(|conv| Conv { dilate: [1, 2, 3], ..conv }).and_then(with_output);
    let others = lines.chain([long, dilated, volume([5, 3, 1], (3, 1), extents)]);
    for conv in flat.into_iter().chain(others).flatten() {
        let [x, w, dy] = operands(&conv, 3);
        let alone = transformed(&conv, &x, &w, &dy);
        assert_eq!(in_team(|| transformed(&conv, &x, &w, &dy)), alone);
    }
}

#[test]
fn nan_stays_in_the_tiles_that_read_it() {
    let conv = square(1, [16, 16], [16, 16], [1, 1]).unwrap();
    let [mut x, w, dy] = operands(&conv, 9);
    let [clean, ..] = transformed(&conv, &x, &w, &dy);
    x[6 * 16 + 6] = f64::NAN;
    let [y, ..] = transformed(&conv, &x, &w, &dy);
    for (i, (y, clean)) in y.iter().zip(&clean).enumerate() {
        let reads = [i / 16 % 16, i % 16].iter().all(|at| at / 4 == 1);
        assert!(if reads { y.is_nan() } else { y == clean }, "output {i}");
    }
}

#[test]
fn nan_stays_in_the_lines_that_read_it() {
    for axis in 0..3 {
        let conv = line((axis, 3, 1), 1, (1, [16, 16], [16; 3])).unwrap();
        let [mut x, w, dy] = operands(&conv, 9);
        let [clean, ..] = transformed(&conv, &x, &w, &dy);
        x[(6 * 16 + 6) * 16 + 6] = f64::NAN;
        let [y, ..] = transformed(&conv, &x, &w, &dy);
        for (i, (y, clean)) in y.iter().zip(&clean).enumerate() {
            let at = [i / 256 % 16, i / 16 % 16, i % 16];
            let reads = (0..3).all(|a| if a == axis { at[a] / 4 == 1 } else { at[a] == 6 });
            assert!(if reads { y.is_nan() } else { y == clean }, "output {i}, axis {axis}");
        }
    }
}

#[test]
fn small_convolutions_are_calculated_directly() {
    let chosen = |channels, size| {
        Geometry::chosen::<f32>(&square(8, channels, [size; 2], [1, 1]).unwrap()).is_some()
    };
    assert!(chosen([64, 64], 56) && chosen([16, 16], 32));
    assert!(!chosen([3, 16], 32) && !chosen([64, 64], 1));
    // Filters that are transformed where they are used.
    let alone = |size| {
        let conv = square(1, [512; 2], [size; 2], [1, 1]).unwrap();
        Geometry::chosen::<f32>(&conv).is_some()
    };
    assert!(alone(7) && !alone(4));
    let over_volumes = |depth| {
        let extents = (1, [64, 64], [28, 28], [1, 1]);
        Geometry::chosen::<f32>(&volume(depth, (3, 1), extents).unwrap()).is_some()
    };
    assert!(over_volumes([8, 3, 1]) && over_volumes([8, 1, 0]));
    let dilated = |dilate: usize, size| {
        let conv = square(1, [64, 64], [size; 2], [1, 1]).unwrap();
        let conv = Conv { dilate: [1, dilate, dilate], pad: [0, dilate, dilate], ..conv };
        Geometry::chosen::<f32>(&with_output(conv).unwrap()).is_some()
    };
    assert!(dilated(2, 28) && dilated(4, 33));
    assert!(!dilated(12, 14) && !dilated(12, 96), "padding, and more tiles than a region has");
    let conv = square(8, [64, 64], [56; 2], [1, 1]).unwrap();
    assert!(Geometry::chosen::<f64>(&conv).is_none(), "float64 is exact");
    assert!(Geometry::of(&Conv { stride: [1, 2, 2], ..conv }).is_none(), "a side of two");
    assert!(Geometry::of(&Conv { stride: [1, 1, 2], ..conv }).is_none());
    assert!(Geometry::of(&Conv { kernel: [1, 3, 5], ..conv }).is_none());
    assert!(Geometry::of(&Conv { kernel: [1; 3], pad: [0; 3], ..conv }).is_none());
    let conv = line((1, 3, 1), 1, (8, [64, 64], [1, 56, 56])).unwrap();
    assert!(Geometry::chosen::<f32>(&conv).is_some() && Geometry::chosen::<f64>(&conv).is_none());
    let few = line((1, 3, 1), 1, (8, [8, 8], [1, 56, 56])).unwrap();
    assert!(Geometry::chosen::<f32>(&few).is_none());
    assert!(Geometry::of(&Conv { stride: [1, 2, 1], ..conv }).is_none());
    assert!(Geometry::of(&Conv { groups: 2, ..conv }).is_none());
    assert!(Geometry::of(&Conv { pad: [0, 3, 1], ..conv }).is_none());
}
