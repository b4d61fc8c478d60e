//! Transforms and counts: `_contrib_fft`, `_contrib_ifft`, `_contrib_count_sketch`, `_histogram`.

use super::common::{all_known, wanted, zero_view};
use super::kernel;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::fft::{Complex, Transform};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef};
use crate::shape::Shape;
use crate::{params, with_dtype};

params! {
    /// Parameters of the Fourier transforms.
    pub struct FourierParam {
        compute_size: i32, default(128).ge(1.0), "Accepted, without effect.";
    }
}

params! {
    /// Parameters of `_contrib_count_sketch`.
    pub struct SketchParam {
        out_dim: i32, required.ge(1.0), "Extent of the sketch.";
        processing_batch_size: i32, default(32), "Accepted, without effect.";
    }
}

params! {
    /// Parameters of `_histogram`.
    pub struct HistogramParam {
        bin_cnt: Option<i32>, default(None), "Number of equal bins; None takes the edges from \
                                              bins.";
        range: Option<FloatPair>, default(None), "Least and greatest number counted, with bin_cnt.";
    }
}

/// Two numbers.
type FloatPair = Vec<f32>;

/// Copies the last axis of an input, transformed, to the output. `complex` inputs and outputs have
/// real and imaginary parts side by side.
fn transform(call: &Call<'_>, inverse: bool) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (width, given) = if inverse {
        (y.dims().last().copied().unwrap_or(1), 2)
    } else {
        (x.dims().last().copied().unwrap_or(1), 1)
    };
    let (n, made) = (width as usize, 3 - given);
    if y.size() == 0 {
        return Ok(());
    }
    let transform = Transform::new(n);
    with_dtype!(y.dtype(), T => {
        let (from, to) = (Shared(x.as_ptr::<T>()), Shared(y.as_ptr::<T>()));
        parallel_for(y.size() / (made * n), 1, |rows| {
            let (mut row, mut scratch) = (vec![Complex::default(); n], Vec::new());
            for r in rows {
                for (j, value) in row.iter_mut().enumerate() {
                    let at = (r * n + j) * given;
                    // SAFETY: inference gave the input this many elements.
                    let part = |i: usize| Element::to_f64(unsafe { *from.at(at + i) });
                    *value = Complex { re: part(0), im: if inverse { part(1) } else { 0.0 } };
                }
                match inverse {
                    true => transform.backward(&mut row, &mut scratch),
                    false => transform.forward(&mut row, &mut scratch),
                }
                for (j, value) in row.iter().enumerate() {
                    let at = (r * n + j) * made;
                    // SAFETY: as above, of the output; each row belongs to one task.
                    unsafe {
                        *to.at(at) = <T as Element>::from_f64(value.re);
                        if !inverse {
                            *to.at(at + 1) = <T as Element>::from_f64(value.im);
                        }
                    }
                }
            }
        });
    });
    Ok(())
}

/// Shapes of which the second has `times` the last extent of the first.
fn widened(narrow: &mut Shape, wide: &mut Shape, names: [&str; 2]) -> Result<()> {
    if let Some((&last, _)) = narrow.dims().split_last().filter(|_| narrow.rank_known()) {
        let mut shape = narrow.clone();
        let at = shape.ndim() - 1;
        shape.dims_mut()[at] = if last < 0 { last } else { 2 * last };
        assign_shape(wide, names[1], &shape)?;
    }
    if let Some((&last, _)) = wide.dims().split_last().filter(|_| wide.rank_known()) {
        if last % 2 != 0 && last > 0 {
            return Err(Error::argument(names[1], "last extent", last, "an even number"));
        }
        let mut shape = wide.clone();
        let at = shape.ndim() - 1;
        shape.dims_mut()[at] = if last < 0 { last } else { last / 2 };
        assign_shape(narrow, names[0], &shape)?;
    }
    Ok(())
}

fn fourier(name: &str, other: &'static str, inverse: bool, doc: &str) -> OpDef {
    OpDef::new::<FourierParam>(name)
        .doc(doc)
        .inputs_are(&[("data", "The numbers; the last axis is transformed.")])
        .infer_shape(move |_, inputs, outputs| {
            match inverse {
                true => widened(&mut outputs[0], &mut inputs[0], ["output", "data"])?,
                false => widened(&mut inputs[0], &mut outputs[0], ["data", "output"])?,
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(same_type)
        .gradient(Gradient::rule_reading(&[], move |builder, node| {
            let grad = node.out_grad(builder, 0)?;
            Ok(vec![Some(builder.op(other, "", &[], &[grad])?[0])])
        }))
        .kernel(kernel(move |call| transform(call, inverse)))
}

/// The place of every feature in the sketch; an error for one that is outside.
fn buckets(call: &Call<'_>, at: usize, out_dim: usize) -> Result<Vec<usize>> {
    let h = &call.inputs[at];
    let mut found = Vec::with_capacity(h.size());
    with_dtype!(h.dtype(), T => for i in 0..h.size() {
        // SAFETY: `i` is an element of the input.
        let place = Element::to_f64(unsafe { *h.as_ptr::<T>().add(i) });
        if !(0.0..out_dim as f64).contains(&place) {
            let expected = format!("0 or more, and less than out_dim = {out_dim}");
            return Err(Error::invalid("place in h", place, expected));
        }
        found.push(place as usize);
    });
    Ok(found)
}

fn sketch(call: &Call<'_>, backward: bool) -> Result<()> {
    let out_dim = call.attrs.get::<SketchParam>().out_dim as usize;
    let places = buckets(call, 1, out_dim)?;
    let width = places.len();
    let (from, signs, to) = (&call.inputs[0], &call.inputs[2], &call.outputs[0]);
    if !backward {
        zero_view(to);
    }
    let rows = if width == 0 { 0 } else { from.size() / if backward { out_dim } else { width } };
    with_dtype!(to.dtype(), T => {
        let (x, y) = (Shared(from.as_ptr::<T>()), Shared(to.as_ptr::<T>()));
        let s = Shared(signs.as_ptr::<T>());
        parallel_for(rows, 1 + (1 << 12) / width.max(1), |range| for row in range {
            for (i, &place) in places.iter().enumerate() {
                let (feature, bucket) = (row * width + i, row * out_dim + place);
                // SAFETY: inference gave the views these extents; each row belongs to one task.
                unsafe {
                    let sign = Element::to_f64(*s.at(i));
                    if backward {
                        *y.at(feature) = <T as Element>::from_f64(sign * Element::to_f64(*x.at(bucket)));
                    } else {
                        let sum = Element::to_f64(*y.at(bucket)) + sign * Element::to_f64(*x.at(feature));
                        *y.at(bucket) = <T as Element>::from_f64(sum);
                    }
                }
            }
        });
    });
    for i in 1..call.outputs.len() {
        if wanted(call, i) {
            zero_view(&call.outputs[i]);
        }
    }
    Ok(())
}

fn count_sketch() -> [OpDef; 2] {
    let forward = OpDef::new::<SketchParam>("_contrib_count_sketch")
        .doc(COUNT_SKETCH)
        .inputs_are(&[
            ("data", "Rows of features."),
            ("h", "The place of every feature in the sketch."),
            ("s", "The sign of every feature: 1 or -1."),
        ])
        .infer_shape(|attrs, inputs, outputs| {
            let out_dim = i64::from(attrs.get::<SketchParam>().out_dim);
            if inputs[0].rank_known() {
                let Some((&width, rows)) = inputs[0].dims().split_last() else {
                    return Err(Error::argument("data", "shape", "()", "at least one axis"));
                };
                let one = Shape::new(&[1, width]);
                let out: Shape = rows.iter().copied().chain([out_dim]).collect();
                for (at, name) in [(1, "h"), (2, "s")] {
                    if inputs[at].ndim() != 1 {
                        assign_shape(&mut inputs[at], name, &one)?;
                    } else if width >= 0 {
                        assign_shape(&mut inputs[at], name, &Shape::new(&[width]))?;
                    }
                }
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_count_sketch", |_: &Attrs, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(1), Dep::Input(2)]
        }))
        .kernel(kernel(|call| sketch(call, false)));
    let backward = OpDef::new::<SketchParam>("_backward_count_sketch").kernel(kernel(|call| {
        // Also where only the zeros of h and s are wanted: that is rare.
        if wanted(call, 0) { sketch(call, true) } else { zero_others(call) }
    }));
    [forward, backward]
}

fn zero_others(call: &Call<'_>) -> Result<()> {
    for i in (1..call.outputs.len()).filter(|&i| wanted(call, i)) {
        zero_view(&call.outputs[i]);
    }
    Ok(())
}

/// Bins: their edges, in order.
fn edges(call: &Call<'_>) -> Result<Vec<f64>> {
    let p: &HistogramParam = call.attrs.get();
    if let Some(count) = p.bin_cnt {
        let range = p.range.as_deref().unwrap_or(&[]);
        let (low, high) = (f64::from(range[0]), f64::from(range[1]));
        let step = (high - low) / f64::from(count);
        return Ok((0..=count).map(|i| low + f64::from(i) * step).collect());
    }
    let bins = &call.inputs[1];
    let mut found = Vec::with_capacity(bins.size());
    with_dtype!(bins.dtype(), T => for i in 0..bins.size() {
        // SAFETY: `i` is an element of the input.
        found.push(Element::to_f64(unsafe { *bins.as_ptr::<T>().add(i) }));
    });
    if found.windows(2).any(|pair| pair[0].partial_cmp(&pair[1]) != Some(std::cmp::Ordering::Less))
    {
        return Err(Error::value("invalid bins: expected edges that rise"));
    }
    Ok(found)
}

fn histogram(call: &Call<'_>) -> Result<()> {
    let edges = edges(call)?;
    let (low, high) = (edges[0], edges[edges.len() - 1]);
    let count = edges.len() - 1;
    let mut counts = vec![0i64; count];
    let x = &call.inputs[0];
    let equal = call.attrs.get::<HistogramParam>().bin_cnt.is_some();
    with_dtype!(x.dtype(), T => for i in 0..x.size() {
        // SAFETY: `i` is an element of the input.
        let value = Element::to_f64(unsafe { *x.as_ptr::<T>().add(i) });
        if value >= low && value <= high {
            let bin = if equal {
                ((value - low) * count as f64 / (high - low)) as usize
            } else {
                edges.partition_point(|edge| *edge <= value).saturating_sub(1)
            };
            counts[bin.min(count - 1)] += 1;
        }
    });
    if wanted(call, 0) {
        // SAFETY: inference gave the output an int64 element for each bin.
        unsafe { call.outputs[0].slice_mut::<i64>() }.copy_from_slice(&counts);
    }
    if wanted(call, 1) {
        let out = &call.outputs[1];
        with_dtype!(out.dtype(), T => for (i, &edge) in edges.iter().enumerate() {
            // SAFETY: inference gave the output an element for each edge.
            unsafe { *out.as_ptr::<T>().add(i) = <T as Element>::from_f64(edge) };
        });
    }
    Ok(())
}

/// The number of bins, -1 if it is not known yet.
fn bin_count(p: &HistogramParam, inputs: &[Shape]) -> Result<i64> {
    match (p.bin_cnt, p.range.as_deref()) {
        (Some(count), Some([low, high])) => {
            if count < 1 {
                return Err(Error::invalid("bin_cnt", count, "1 or more"));
            }
            // Not the negation, which would let NaN through.
            if low.partial_cmp(high) != Some(std::cmp::Ordering::Less) || !(high - low).is_finite()
            {
                let text = format!("({low}, {high})");
                return Err(Error::invalid("range", text, "two numbers that rise"));
            }
            Ok(i64::from(count))
        }
        (None, None) => match inputs.get(1) {
            Some(bins) if bins.is_known() && bins.size() < 2 => {
                Err(Error::argument("bins", "shape", bins, "at least two edges"))
            }
            Some(bins) if bins.is_known() => Ok(bins.size() as i64 - 1),
            _ => Ok(-1),
        },
        _ => Err(Error::value(
            "invalid range: expected both bin_cnt and a range of two numbers, or neither",
        )),
    }
}

fn histograms() -> OpDef {
    OpDef::new::<HistogramParam>("_histogram")
        .aliases(&["_npi_histogram"])
        .doc(HISTOGRAM)
        .inputs_are(&[
            ("data", "What is counted."),
            ("bins", "The edges, which rise; without bin_cnt only."),
        ])
        .input_names_by(|attrs| match attrs.get::<HistogramParam>().bin_cnt {
            Some(_) => vec!["data".into()],
            None => vec!["data".into(), "bins".into()],
        })
        .outputs_are(&["output0", "output1"])
        .infer_shape(|attrs, inputs, outputs| {
            let bins = bin_count(attrs.get(), inputs)?;
            if bins >= 0 {
                assign_shape(&mut outputs[0], "output0", &Shape::new(&[bins]))?;
                assign_shape(&mut outputs[1], "output1", &Shape::new(&[bins + 1]))?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(|_, inputs, outputs| {
            assign_type(&mut outputs[0], "output0", DType::I64)?;
            if let Some(dtype) = inputs[0] {
                assign_type(&mut outputs[1], "output1", dtype)?;
                if inputs.len() > 1 {
                    assign_type(&mut inputs[1], "bins", dtype)?;
                }
            }
            Ok(inputs[0].is_some())
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(histogram))
}

const FFT: &str = "The discrete Fourier transform of the last axis: ``y_k = sum_j x_j exp(-2 pi i j
k / d)``.

Notes
-----
Input ``(..., d)``, output ``(..., 2 d)``: real and imaginary part of each number side by side. Any
real dtype, calculated in float64. The gradient is :func:`ifft` of the gradient.

Examples
--------
>>> nd.contrib.fft(nd.array([[1, 0, 0]]))
[[1. 0. 1. 0. 1. 0.]]
";

const IFFT: &str = "The real part of the inverse transform, without the factor 1 / d: ``y_j = Re
sum_k x_k exp(2 pi i j k / d)``.

Notes
-----
Input ``(..., 2 d)``, real and imaginary parts side by side; output ``(..., d)``. Divide by d for
the inverse of :func:`fft`. The gradient is :func:`fft` of the gradient.

Examples
--------
>>> nd.contrib.ifft(nd.array([[1, 0, 1, 0, 1, 0]]))
[[3. 0. 0.]]
";

const COUNT_SKETCH: &str = "Count sketch: ``out[..., h[i]] += s[i] * data[..., i]``.

Notes
-----
data ``(..., d)``, h and s ``(1, d)`` or ``(d,)``, output ``(..., out_dim)``. One dtype. A place in
h that is not below ``out_dim`` is an error. h and s have no gradient. Source: M. Charikar, K. Chen,
M. Farach-Colton, Finding frequent items in data streams, 2002.

Examples
--------
>>> nd.contrib.count_sketch(nd.array([[1, 2, 3]]), nd.array([[0, 1, 0]]), nd.array([[1, -1, 1]]),
...     out_dim=2)
[[ 4. -2.]]
";

const HISTOGRAM: &str = "How many numbers are in each bin, and the edges of the bins.

Notes
-----
Bins include their lower edge, the last one its upper edge too; numbers outside are not counted.
Counts are int64, edges of the dtype of the data. Edges that do not rise are an error; the gradient
is zero.

Examples
--------
>>> counts, edges = nd.histogram(nd.array([0, 1, 1, 3]), bins=2, range=(0, 4))
>>> counts.asnumpy().tolist(), edges.asnumpy().tolist()
([3, 1], [0.0, 2.0, 4.0])
";

pub fn operators() -> Vec<OpDef> {
    let mut all = vec![
        fourier("_contrib_fft", "_contrib_ifft", false, FFT),
        fourier("_contrib_ifft", "_contrib_fft", true, IFFT),
        histograms(),
    ];
    all.extend(count_sketch());
    all
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[2, 6], 1);
        check_gradient("_contrib_fft", &[], &[x.clone()], &[0], true);
        check_gradient("_contrib_ifft", &[], &[x.clone()], &[0], true);
        let places = Tensor::of(&[1, 6], &[0., 2., 1., 2., 0., 3.]);
        let signs = Tensor::of(&[1, 6], &[1., -1., 1., 1., -1., 1.]);
        let sketch = [x, places, signs];
        check_gradient("_contrib_count_sketch", &[("out_dim", "4")], &sketch, &[0], true);
    }

    #[test]
    fn bins_include_their_lower_edge() {
        let x = Tensor::of(&[5], &[-1., 0., 1., 2., 4.]);
        let params = [("bin_cnt", "2"), ("range", "(0, 2)")];
        assert_eq!(values("_histogram", &params, &[x.clone()]), [1., 2.]);
        let bins = Tensor::of(&[3], &[0., 1., 2.]);
        assert_eq!(values("_histogram", &[], &[x, bins]), [1., 2.]);
    }
}
