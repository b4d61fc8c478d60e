//! The convolution kernels against the scalar reference.

use super::*;
use crate::kernels::kept::{Keeper, Kept};
use crate::kernels::naive::{close, noise};
use crate::kernels::parallel::Shared;
use crate::kernels::real::Real;
use proptest::prelude::*;

/// `y = conv(x, w)`, its gradients by the definition: `(y, dx, dw)`.
pub fn naive(conv: &Conv, x: &[f64], w: &[f64], dy: &[f64]) -> [Vec<f64>; 3] {
    let (mut y, mut dx, mut dw) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    let filters = conv.groups * conv.out_c;
    for n in 0..conv.batch {
        for f in 0..filters {
            for o in 0..conv.out_size() {
                let at = split(o, conv.output);
                for c in 0..conv.in_c {
                    for t in 0..conv.taps() {
                        let tap = split(t, conv.kernel);
                        let from: Option<Vec<usize>> =
                            (0..3).map(|a| conv.source(a, at[a], tap[a])).collect();
                        let Some(s) = from else { continue };
                        let plane = n * conv.groups * conv.in_c + f / conv.out_c * conv.in_c + c;
                        let i = plane * conv.in_size()
                            + (s[0] * conv.input[1] + s[1]) * conv.input[2]
                            + s[2];
                        let (wi, yi) = (
                            (f * conv.in_c + c) * conv.taps() + t,
                            (n * filters + f) * conv.out_size() + o,
                        );
                        y[yi] += x[i] * w[wi];
                        dx[i] += dy[yi] * w[wi];
                        dw[wi] += dy[yi] * x[i];
                    }
                }
            }
        }
    }
    [y, dx, dw]
}

fn split(i: usize, dims: [usize; 3]) -> [usize; 3] {
    [i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2]]
}

/// Calls `run` with a function that changes the sign of the elements it is told of, and changes all
/// signs back: the values are right only if each of the `n` elements was reported once, when it was
/// finished.
///
/// # Safety
/// `y` has as many elements when `run` ends.
pub unsafe fn negated<T: Real>(y: *mut T, n: usize, run: impl FnOnce(OnElements<'_>)) {
    let y = Shared(y);
    // SAFETY: promised by the caller.
    let turn = |elements: Range<usize>| elements.for_each(|i| unsafe { *y.at(i) = -*y.at(i) });
    run(&turn);
    turn(0..n);
}

/// Whether calls that keep what they make of the filters, and those that find it, give the outputs
/// `want` of a call that does not.
///
/// # Safety
/// The operands have the extents of the convolution.
pub unsafe fn keeps<T: Real>(conv: &Conv, x: &[T], w: &[T], bias: &[T], want: &[T]) -> bool {
    let kept = Kept::default();
    (0..3).all(|_| {
        let keeper = Some(Keeper::new(&kept, [7; 4]));
        let mut y = vec![T::of(9.0); want.len()];
        let bias = (!bias.is_empty()).then_some(bias.as_ptr());
        // SAFETY: promised by the caller.
        unsafe { forward(conv, x.as_ptr(), w.as_ptr(), bias, y.as_mut_ptr(), None, keeper) };
        y == want
    })
}

fn check(conv: &Conv, seed: u64) -> bool {
    check_as::<f64>(conv, seed, 1e-12)
}

fn check_as<T: Real>(conv: &Conv, seed: u64, tolerance: f64) -> bool {
    let filters = conv.groups * conv.out_c;
    let x = noise(conv.batch * conv.groups * conv.in_c * conv.in_size(), seed);
    let w = noise(filters * conv.depth(), seed ^ 1);
    let dy = noise(conv.batch * filters * conv.out_size(), seed ^ 2);
    let bias = noise(filters, seed ^ 3);
    let [mut want, want_dx, want_dw] = naive(conv, &x, &w, &dy);
    for (i, y) in want.iter_mut().enumerate() {
        *y += bias[i / conv.out_size() % filters];
    }
    let [x, w, dy, bias, want, want_dx, want_dw] = [x, w, dy, bias, want, want_dx, want_dw]
        .map(|values| values.into_iter().map(T::of).collect::<Vec<T>>());
    let [mut y, mut dx, mut dw] = [dy.len(), x.len(), w.len()].map(|n| vec![T::of(9.0); n]);
    // SAFETY: the buffers have the extents of the convolution.
    unsafe {
        negated(y.as_mut_ptr(), y.len(), |done| {
            let y = y.as_mut_ptr();
            forward(conv, x.as_ptr(), w.as_ptr(), Some(bias.as_ptr()), y, Some(done), None);
        });
        if !keeps(conv, &x, &w, &bias, &y) {
            return false;
        }
        backward_data(conv, dy.as_ptr(), w.as_ptr(), dx.as_mut_ptr());
        backward_weight(conv, x.as_ptr(), dy.as_ptr(), dw.as_mut_ptr());
    }
    [(y, want), (dx, want_dx), (dw, want_dw)].iter().all(|(a, b)| close(a, b, tolerance))
}

pub fn with_output(mut conv: Conv) -> Option<Conv> {
    for a in 0..3 {
        let reach = conv.dilate[a] * (conv.kernel[a] - 1) + 1;
        let padded = conv.input[a] + 2 * conv.pad[a];
        conv.output[a] = padded.checked_sub(reach)? / conv.stride[a] + 1;
    }
    Some(conv)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn convolution_matches_naive(
        batch in 0usize..4, groups in 1usize..4, in_c in 0usize..5, out_c in 1usize..5,
        input in [1usize..3, 1usize..9, 1usize..20], kernel in [1usize..3, 1usize..4, 1usize..4],
        stride in [1usize..3, 1usize..3, 1usize..4], pad in [0usize..2, 0usize..3, 0usize..3],
        dilate in [1usize..2, 1usize..3, 1usize..3], seed: u64,
    ) {
        let conv =
            Conv { batch, groups, in_c, out_c, input, kernel, output: [0; 3], stride, pad, dilate };
        if let Some(conv) = with_output(conv) {
            prop_assert!(check(&conv, seed), "{conv:?}");
        }
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let base = Conv {
        batch: 3,
        groups: 2,
        in_c: 5,
        out_c: 17,
        input: [1, 23, 19],
        kernel: [1, 5, 3],
        output: [0; 3],
        stride: [1, 2, 1],
        pad: [0, 2, 1],
        dilate: [1; 3],
    };
    let small = Conv { batch: 1, groups: 1, in_c: 70, out_c: 53, input: [1, 7, 6], ..base };
    let single = Conv { kernel: [1; 3], pad: [0; 3], ..small };
    let wide = Conv { input: [1, 17, 25], ..single };
    for conv in [base, small, single, wide] {
        check_threads(&with_output(conv).unwrap());
    }
}

fn check_threads(conv: &Conv) {
    let filters = conv.groups * conv.out_c;
    let x = noise(conv.batch * conv.groups * conv.in_c * conv.in_size(), 1);
    let w = noise(filters * conv.depth(), 2);
    let dy = noise(conv.batch * filters * conv.out_size(), 3);
    let run = || {
        let [mut y, mut dx, mut dw] = [dy.len(), x.len(), w.len()].map(|n| vec![9.0; n]);
        // SAFETY: the buffers have the extents of the convolution.
        unsafe {
            forward(conv, x.as_ptr(), w.as_ptr(), None, y.as_mut_ptr(), None, None);
            backward_data(conv, dy.as_ptr(), w.as_ptr(), dx.as_mut_ptr());
            backward_weight(conv, x.as_ptr(), dy.as_ptr(), dw.as_mut_ptr());
        }
        [y, dx, dw]
    };
    let alone = run();
    assert_eq!(crate::fork_join::tests::in_team(run), alone, "{conv:?}");
}

/// Images with filters of 3×3, from which tests make their cases.
const IMAGES: Conv = Conv {
    batch: 2,
    groups: 1,
    in_c: 3,
    out_c: 70,
    input: [1, 40, 40],
    kernel: [1, 3, 3],
    output: [0; 3],
    stride: [1; 3],
    pad: [0, 1, 1],
    dilate: [1; 3],
};

#[test]
fn special_paths_match_naive() {
    let base = IMAGES;
    let pointwise = Conv { kernel: [1; 3], pad: [0; 3], ..base };
    let depthwise = Conv { groups: 5, in_c: 1, out_c: 2, ..base };
    let strided = Conv { stride: [1, 2, 3], in_c: 37, ..pointwise };
    let in_groups = Conv { groups: 3, batch: 1, out_c: 7, ..strided };
    // One image, a small plane, many filters: tasks have parts of the filters.
    let small = Conv { batch: 1, in_c: 90, out_c: 101, input: [1, 7, 7], ..base };
    let few = Conv { out_c: 2, ..small };
    let deep = Conv { in_c: 200, out_c: 3, input: [1, 12, 30], ..base };
    // More cells than a task takes: in several rows, in several planes, in one long row.
    let volume = Conv { in_c: 4, out_c: 9, input: [3, 21, 30], kernel: [2, 3, 3], ..base };
    let line = Conv { input: [1, 1, 1500], kernel: [1, 1, 4], pad: [0, 0, 2], ..volume };
    let halved = |conv: Conv| Conv { stride: [1, 2, 2], ..conv };
    // Elements that no tap reads, which a phase of the image holds or none does.
    let dilated = Conv { dilate: [1, 2, 2], ..halved(volume) };
    let gaps = Conv { stride: [1, 1, 5], ..line };
    let all = [base, pointwise, strided, in_groups, depthwise, small, few, deep, volume, line];
    for conv in all.into_iter().chain([halved(volume), halved(line), dilated, gaps]) {
        assert!(check(&with_output(conv).unwrap(), 7), "{conv:?}");
    }
}

/// Windows that are read in place and laid out, in chunks that are cut along every axis.
#[test]
fn windows_match_naive() {
    let base = Conv { out_c: 37, stride: [1, 2, 2], input: [1, 40, 43], ..IMAGES };
    let in_place = Conv { pad: [0; 3], ..base };
    let fourth = Conv { kernel: [1, 7, 5], stride: [1, 4, 4], ..base };
    let volume =
        Conv { out_c: 32, input: [5, 29, 31], kernel: [3; 3], stride: [2; 3], pad: [1; 3], ..base };
    let slices = Conv { input: [35, 9, 11], ..volume };
    let line = Conv { in_c: 4, input: [1, 1, 1500], kernel: [1, 1, 5], ..in_place };
    // Several slabs of terms, and tasks with parts of the filters.
    let deep = Conv { in_c: 90, batch: 1, input: [1, 13, 13], ..base };
    let in_groups = Conv { groups: 3, in_c: 2, out_c: 29, ..base };
    let outside = Conv { pad: [0, 4, 5], ..base };
    let all = [base, in_place, fourth, volume, slices, line, deep, in_groups, outside];
    for conv in all.map(|conv| with_output(conv).unwrap()) {
        assert!(windows::Windows::<f32>::chosen(&conv).is_some(), "{conv:?}");
        assert!(check(&conv, 8), "{conv:?}");
        assert!(check_as::<f32>(&conv, 8, 1e-4), "{conv:?}");
        check_threads(&conv);
    }
    // Taps that are apart, and much that is laid out for few filters.
    let dilated = Conv { dilate: [1, 2, 2], ..base };
    let few = Conv { out_c: 15, input: [1, 52, 86], kernel: [1, 7, 2], pad: [0, 3, 0], ..base };
    for conv in [dilated, few] {
        assert!(windows::Windows::<f32>::chosen(&with_output(conv).unwrap()).is_none(), "{conv:?}");
    }
}

/// Filters over one channel whose rows are calculated together, and in columns of three taps, two
/// and one: with more taps than a column has, by phases, over volumes, and with distances between
/// the taps.
#[test]
fn filters_of_single_channels_match_naive() {
    let base = Conv { groups: 5, in_c: 1, out_c: 2, input: [1, 28, 28], ..IMAGES };
    let five = Conv { kernel: [1, 5, 5], pad: [0, 2, 2], ..base };
    let seven = Conv { kernel: [1, 7, 3], pad: [0, 3, 1], ..base };
    let four = Conv { kernel: [1, 4, 3], pad: [0, 0, 2], ..base };
    let halved = Conv { input: [1, 57, 57], stride: [1, 2, 2], ..base };
    let volume = Conv { input: [3, 15, 14], kernel: [2, 3, 3], pad: [1, 1, 1], ..base };
    let apart = Conv { dilate: [1, 2, 1], pad: [0, 2, 1], ..base };
    for conv in [base, five, seven, four, halved, volume, apart] {
        let conv = with_output(conv).unwrap();
        assert!(check(&conv, 6) && check_as::<f32>(&conv, 6, 1e-5), "{conv:?}");
        check_threads(&conv);
    }
}

#[test]
fn filters_of_one_element_match_naive() {
    let extents = Conv { in_c: 33, out_c: 48, input: [1, 13, 17], ..IMAGES };
    let base = Conv { kernel: [1; 3], pad: [0; 3], ..extents };
    // Gradients of filters whose tasks have parts of the result: written in place, from registers
    // that are not full, and transposed.
    let large = Conv { in_c: 272, out_c: 280, input: [1, 3, 5], batch: 3, ..base };
    let ragged = Conv { in_c: 261, ..large };
    let transposed = Conv { groups: 4, in_c: 140, out_c: 118, batch: 16, ..large };
    // Parts of the positions.
    let long = Conv { in_c: 17, out_c: 20, input: [1, 60, 61], ..base };
    let long_transposed = Conv { in_c: 40, ..long };
    // Several rounds, and several items in a slice.
    let rounds = Conv { batch: 9, ..long };
    let tiny = Conv { batch: 37, input: [1, 2, 3], ..base };
    let strided = |conv: Conv| Conv { stride: [1, 2, 3], ..conv };
    let in_groups = |conv: Conv| Conv { groups: 2, ..conv };
    let volume = Conv { input: [4, 9, 11], stride: [2, 1, 2], ..base };
    // Several rounds of parts of the result.
    let many = Conv { groups: 16, in_c: 17, out_c: 20, batch: 10, ..base };
    let many_transposed = Conv { in_c: 20, out_c: 17, ..many };
    let deep = Conv { in_c: 1000, out_c: 16, input: [1, 3, 7], batch: 100, ..strided(base) };
    let grouped = [base, tiny, strided(long), strided(base), long_transposed];
    let grouped = grouped.into_iter().chain([Conv { batch: 4, ..base }]).map(in_groups);
    let all = [base, ragged, long, long_transposed, tiny, volume, large, transposed, rounds, many];
    // Small planes side by side: in one chunk of columns and in several, in several rounds, with
    // fewer columns than a register has, and by chunks of rows.
    let small = Conv { in_c: 70, out_c: 90, input: [1, 7, 7], batch: 3, ..base };
    let chunks = Conv { in_c: 40, out_c: 33, batch: 6, ..small };
    let cells = Conv { in_c: 400, out_c: 300, batch: 2, input: [1, 2, 2], ..base };
    let small_rounds = Conv { in_c: 1100, out_c: 32, batch: 10, ..small };
    let beside = [small, chunks, cells, small_rounds, strided(small)];
    let beside = beside.into_iter().chain([small, strided(chunks)].map(in_groups));
    let all = all.into_iter().chain([many_transposed, deep]).chain(beside.clone());
    let all = all.chain([base, large, long, rounds, tiny].map(strided)).chain(grouped.clone());
    let threads = [large, transposed, rounds, many, many_transposed, deep, strided(rounds)];
    for conv in threads.into_iter().chain(grouped).chain(beside) {
        check_threads(&with_output(conv).unwrap());
    }
    for conv in all {
        assert!(check(&with_output(conv).unwrap(), 5), "{conv:?}");
    }
    for conv in [base, large, strided(rounds), many, small] {
        let conv = with_output(conv).unwrap();
        assert!(check_as::<f32>(&conv, 5, 1e-4), "{conv:?}");
    }
    // Nothing to sum up, and nothing to write.
    let empty = Conv { batch: 0, ..base };
    let no_channels = Conv { in_c: 0, ..base };
    for conv in [empty, no_channels, Conv { batch: 5, ..no_channels }, strided(no_channels)] {
        assert!(check(&with_output(conv).unwrap(), 5), "{conv:?}");
    }
}
