//! `UpSampling`: larger images by repeating elements or by a bilinear filter.

use super::infer::{complete, expect_rank, float_type};
use super::widening;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::kernels::conv::{self, Conv};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq};
use crate::shape::Shape;
use crate::{param_enum, params, with_real};

param_enum! {
    /// How elements between the given ones are computed.
    pub enum SampleType { Bilinear = "bilinear", Nearest = "nearest" }
}

param_enum! {
    /// How several inputs are combined.
    pub enum MultiInput { Concat = "concat", Sum = "sum" }
}

params! {
    /// Parameters of `UpSampling`.
    pub struct UpSamplingParam {
        scale: i32, required.ge(1.0), "Factor of height and width.";
        num_filter: i32, default(0), "Channels, with sample_type='bilinear'.";
        sample_type: SampleType, required, "Repeat elements, or filter.";
        multi_input_mode: MultiInput, default(MultiInput::Concat), "Join several inputs along the \
             channels, or add them.";
        num_args: i32, required.ge(1.0), "Number of inputs.";
        workspace: u64, default(512), "Accepted, without effect.";
    }
}

const DOC: &str = r#"
Enlarges images ``(N, C, H, W)`` to ``(N, C, scale * H, scale * W)``.

Notes
-----
``sample_type='nearest'`` repeats every element. It takes any number of inputs; all are enlarged to
the size of the first one's result, which theirs must divide, and joined along the channels, or
added with ``multi_input_mode='sum'``. ``sample_type='bilinear'`` takes inputs ``data`` and
``weight`` and is a ``Deconvolution`` of each channel by itself with kernel ``2 * scale - scale %
2``, stride ``scale`` and padding ``ceil((scale - 1) / 2)``; weight is ``(C, 1, kernel, kernel)``
and is initialised to bilinear interpolation. One dtype: float16 (calculated in float32), float32 or
float64.

Examples
--------
>>> nd.UpSampling(nd.array([[[[1, 2]]]]), scale=2, sample_type='nearest')
[[[[1. 1. 2. 2.]
   [1. 1. 2. 2.]]]]
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<UpSamplingParam>("UpSampling")
        .doc(DOC)
        .variadic("num_args", "Images to enlarge; with sample_type='bilinear' data and weight.")
        .input_names_by(|attrs| {
            let param: &UpSamplingParam = attrs.get();
            match param.sample_type {
                SampleType::Bilinear => vec!["data".to_owned(), "weight".to_owned()],
                SampleType::Nearest => (0..param.num_args).map(|i| format!("arg{i}")).collect(),
            }
        })
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .variable_attr("weight", "__init__", "[\"bilinear\", {}]")
        .gradient(Gradient::declared("_backward_UpSampling", |attrs, _, _| {
            match attrs.get::<UpSamplingParam>().sample_type {
                SampleType::Bilinear => vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)],
                SampleType::Nearest => vec![Dep::OutGrad(0)],
            }
        }))
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))));
    let backward = OpDef::new::<UpSamplingParam>("_backward_UpSampling")
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &UpSamplingParam = attrs.get();
    let scale = i64::from(param.scale);
    for (i, s) in inputs.iter().enumerate() {
        expect_rank(s, if i == 0 { "data" } else { "argument" }, 4..=4)?;
    }
    if param.sample_type == SampleType::Bilinear {
        let k = 2 * scale - scale % 2;
        let mut weight = Shape::new(&[-1, 1, k, k]);
        if inputs[0].rank_known() {
            weight.dims_mut()[0] = inputs[0].dims()[1];
        }
        assign_shape(&mut inputs[1], "weight", &weight)?;
    }
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let times = |d: i64| if d < 0 { -1 } else { d * scale };
    let mut out: Shape = inputs[0].clone();
    for a in 2..4 {
        out.dims_mut()[a] = times(out.dims()[a]);
    }
    if param.sample_type == SampleType::Nearest {
        for (i, s) in inputs.iter().enumerate().skip(1) {
            if !s.rank_known() {
                out.dims_mut()[1] = -1;
                continue;
            }
            let fits = |a: usize| {
                let (whole, part) = (out.dims()[a], s.dims()[a]);
                whole < 0 || part < 0 || (part > 0 && whole % part == 0)
            };
            let sum = param.multi_input_mode == MultiInput::Sum;
            let channels = !sum || s.dims()[1] == inputs[0].dims()[1];
            let batch = s.dims()[0] == out.dims()[0] || s.dims()[0] < 0 || out.dims()[0] < 0;
            if !fits(2) || !fits(3) || !channels || !batch {
                let expected = format!("a shape that can be enlarged to {out}");
                return Err(Error::argument(&format!("arg{i}"), "shape", s, expected));
            }
            if !sum {
                let (a, b) = (out.dims()[1], s.dims()[1]);
                out.dims_mut()[1] = if a < 0 || b < 0 { -1 } else { a + b };
            }
        }
    }
    assign_shape(&mut outputs[0], "output", &out)?;
    complete(inputs, outputs)
}

/// The convolution whose transpose enlarges bilinearly.
pub(in crate::ops) fn bilinear(call: &Call<'_>, data: &Shape) -> Conv {
    let scale = call.attrs.get::<UpSamplingParam>().scale as usize;
    let d: Vec<usize> = data.dims().iter().map(|&d| d as usize).collect();
    let (kernel, pad) = (2 * scale - scale % 2, scale / 2);
    Conv {
        batch: d[0],
        groups: d[1],
        in_c: 1,
        out_c: 1,
        input: [1, d[2] * scale, d[3] * scale],
        kernel: [1, kernel, kernel],
        output: [1, d[2], d[3]],
        stride: [1, scale, scale],
        pad: [0, pad, pad],
        dilate: [1; 3],
    }
}

/// How an input's planes lie in the output: (planes of an image, first output plane, planes of an
/// output image, height, width, factor of height, of width).
struct Part {
    channels: usize,
    first: usize,
    total: usize,
    size: [usize; 2],
    factor: [usize; 2],
}

fn parts(inputs: &[Shape], out: &Shape) -> Vec<Part> {
    let total = out.dims()[1] as usize;
    let joined: usize = inputs.iter().map(|s| s.dims()[1] as usize).sum();
    let mut first = 0;
    inputs
        .iter()
        .map(|s| {
            let d: Vec<usize> = s.dims().iter().map(|&d| d as usize).collect();
            let factor = [2, 3].map(|a| out.dims()[a] as usize / d[a].max(1));
            let part = Part { channels: d[1], first, total, size: [d[2], d[3]], factor };
            first += if joined == total { d[1] } else { 0 };
            part
        })
        .collect()
}

impl Part {
    /// Calls `f(input plane, output plane)` side by side.
    fn planes(&self, batch: usize, f: impl Fn(usize, usize) + Send + Sync) {
        let work = self.size.iter().chain(&self.factor).product::<usize>();
        parallel_for(batch * self.channels, (1usize << 13).div_ceil(work.max(1)), |range| {
            for i in range {
                let (n, c) = (i / self.channels, i % self.channels);
                f(i, n * self.total + self.first + c);
            }
        });
    }

    fn in_plane(&self) -> usize {
        self.size[0] * self.size[1]
    }

    fn out_plane(&self) -> usize {
        self.in_plane() * self.factor[0] * self.factor[1]
    }
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let param: &UpSamplingParam = call.attrs.get();
    let out = &call.outputs[0];
    let y = Shared(out.as_ptr::<T>());
    if param.sample_type == SampleType::Bilinear {
        let conv = bilinear(call, call.inputs[0].shape());
        let [x, w] = [0, 1].map(|i| call.inputs[i].as_ptr::<T>());
        // SAFETY: inference gave the views these extents; the output overlaps no input.
        unsafe { conv::backward_data(&conv, x, w, y.at(0)) };
        return Ok(());
    }
    let shapes: Vec<Shape> = call.inputs.iter().map(|v| v.shape().clone()).collect();
    for (i, part) in parts(&shapes, out.shape()).iter().enumerate() {
        let x = Shared(call.inputs[i].as_ptr::<T>());
        let add = i > 0 && param.multi_input_mode == MultiInput::Sum;
        let [fh, fw] = part.factor;
        let width = part.size[1];
        part.planes(shapes[i].dims()[0] as usize, |from, to| {
            for h in 0..part.size[0] * fh {
                for w in 0..width * fw {
                    // SAFETY: indices stay inside the planes; output planes belong to one task.
                    unsafe {
                        let v = *x.at(from * part.in_plane() + h / fh * width + w / fw);
                        let slot = y.at(to * part.out_plane() + h * width * fw + w);
                        *slot = if add { *slot + v } else { v };
                    }
                }
            }
        });
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let param: &UpSamplingParam = call.attrs.get();
    let dy = Shared(call.inputs[0].as_ptr::<T>());
    if param.sample_type == SampleType::Bilinear {
        let conv = bilinear(call, call.inputs[1].shape());
        let [x, w] = [1, 2].map(|i| call.inputs[i].as_ptr::<T>());
        // SAFETY: gradients have the extents of their inputs and overlap no input.
        unsafe {
            if call.req[0] != OpReq::Null {
                conv::forward(&conv, dy.at(0), w, None, call.outputs[0].as_ptr(), None, None);
            }
            if call.req[1] != OpReq::Null {
                conv::backward_weight(&conv, dy.at(0), x, call.outputs[1].as_ptr());
            }
        }
        return Ok(());
    }
    let shapes: Vec<Shape> = call.outputs.iter().map(|v| v.shape().clone()).collect();
    for (i, part) in parts(&shapes, call.inputs[0].shape()).iter().enumerate() {
        if call.req[i] == OpReq::Null {
            continue;
        }
        let dx = Shared(call.outputs[i].as_ptr::<T>());
        let [fh, fw] = part.factor;
        let width = part.size[1];
        part.planes(shapes[i].dims()[0] as usize, |to, from| {
            for h in 0..part.size[0] {
                for w in 0..width {
                    let mut total = 0.0;
                    for (a, b) in (0..fh).flat_map(|a| (0..fw).map(move |b| (a, b))) {
                        let at = (h * fh + a) * width * fw + w * fw + b;
                        // SAFETY: as in `forward`.
                        total += Element::to_f64(unsafe { *dy.at(from * part.out_plane() + at) });
                    }
                    // SAFETY: as in `forward`.
                    unsafe { *dx.at(to * part.in_plane() + h * width + w) = T::of(total) };
                }
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn repeats_joins_and_adds() {
        let p = [("scale", "2"), ("sample_type", "nearest"), ("num_args", "2")];
        let (a, b) = (Tensor::of(&[1, 1, 1, 2], &[1., 2.]), Tensor::of(&[1, 1, 1, 1], &[5.]));
        let joined = values("UpSampling", &p, &[a.clone(), b.clone()]);
        assert_eq!(joined, [1., 1., 2., 2., 1., 1., 2., 2., 5., 5., 5., 5., 5., 5., 5., 5.]);
        let sum = [&p[..], &[("multi_input_mode", "sum")]].concat();
        assert_eq!(values("UpSampling", &sum, &[a, b]), [6., 6., 7., 7., 6., 6., 7., 7.]);
    }

    #[test]
    fn gradients_match_differences() {
        let p = [("scale", "2"), ("sample_type", "nearest"), ("num_args", "2")];
        let inputs = [Tensor::noise(&[2, 2, 2, 4], 1), Tensor::noise(&[2, 3, 1, 2], 2)];
        check_gradient("UpSampling", &p, &inputs, &[0, 1], true);
        check_half("UpSampling", &p, &inputs, true);
        for (scale, k) in [("1", 1), ("2", 4), ("3", 5)] {
            let p = [
                ("scale", scale),
                ("sample_type", "bilinear"),
                ("num_args", "2"),
                ("num_filter", "2"),
            ];
            let inputs = [Tensor::noise(&[1, 2, 3, 2], 1), Tensor::noise(&[2, 1, k, k], 2)];
            check_gradient("UpSampling", &p, &inputs, &[0, 1], true);
        }
    }

    #[test]
    fn shapes() {
        let p =
            [("scale", "2"), ("sample_type", "bilinear"), ("num_args", "1"), ("num_filter", "3")];
        let (_, ins, outs) = infer_shapes("UpSampling", &p, &[Some(&[1, 3, 4, 4])]).unwrap();
        assert_eq!((ins[1].dims(), outs[0].dims()), (&[3, 1, 4, 4][..], &[1, 3, 8, 8][..]));
        let p = [("scale", "2"), ("sample_type", "nearest"), ("num_args", "2")];
        assert!(
            infer_shapes("UpSampling", &p, &[Some(&[1, 3, 4, 4]), Some(&[1, 3, 3, 3])]).is_err()
        );
    }
}
