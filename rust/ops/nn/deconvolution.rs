//! `Deconvolution`: the transpose of a convolution.

use super::channels_first::{self, Gradients, IMAGE, OUTPUT, sizes, to_first, with_first};
use super::infer::{complete, expect_rank, float_type};
use super::widening;
use super::window::{ConvLayout, CudnnTune, Layout, spatial, swap_inner, three};
use crate::error::{Error, Result};
use crate::kernels::conv::{self, Conv};
use crate::kernels::real::Real;
use crate::kernels::reduce_rows::add_channels;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `Deconvolution`.
    pub struct DeconvolutionParam {
        kernel: Tuple, required, "Extents of a filter: (w,), (h, w) or (d, h, w).";
        stride: Tuple, default(Tuple::new()), "Steps between the positions that an input element \
                                               spreads to; default 1.";
        dilate: Tuple, default(Tuple::new()), "Steps between filter elements; default 1 on every \
                                               axis.";
        pad: Tuple, default(Tuple::new()), "Elements cut off before and after each spatial axis; \
                                            default 0.";
        adj: Tuple, default(Tuple::new()), "Elements added after each spatial axis, less than \
                                            stride; default 0.";
        target_shape: Tuple, default(Tuple::new()), "Spatial extents of the output; replaces pad \
                                                     and adj.";
        num_filter: u32, required.ge(1.0), "Number of channels of the output.";
        num_group: u32, default(1).ge(1.0), "Number of groups that channels are divided into.";
        workspace: u64, default(512), "Accepted, without effect.";
        no_bias: bool, default(true), "Leave out the input bias.";
        cudnn_tune: Option<CudnnTune>, default(None), "Accepted, without effect.";
        cudnn_off: bool, default(false), "Accepted, without effect.";
        layout: Option<ConvLayout>, default(None), "Order of the axes; None is channels first.";
    }
}

const DOC: &str = r#"
Transposed convolution: the map from the output of a convolution to the gradient of its image. Every
input element spreads, times the filter, over ``kernel`` output elements, ``stride`` apart.

Notes
-----
Data ``(N, C, ...)`` with one to three spatial axes; weight ``(C, num_filter / num_group, *kernel)``
and bias ``(num_filter,)`` are inferred. Output extents are ``(in - 1) * stride - 2 * pad + dilate *
(kernel - 1) + 1 + adj``, or ``target_shape``; padding that leaves no element of an axis is an
error. **There is no bias by default.** In channels-last layouts the weight is ``(C, *kernel,
num_filter / num_group)``. One dtype: float16 (calculated in float32), float32 or float64.

Examples
--------
>>> nd.Deconvolution(nd.array([[[1, 2]]]), nd.ones((1, 1, 2)), kernel=(2,), stride=(2,),
...     num_filter=1)
[[[1. 1. 2. 2.]]]
"#;

pub fn operators() -> Vec<OpDef> {
    let forward = OpDef::new::<DeconvolutionParam>("Deconvolution")
        .aliases(&["_npx_deconvolution"])
        .doc(DOC)
        .inputs_are(&[
            ("data", "The images (N, C, ...)."),
            ("weight", "The filters (C, num_filter / num_group, *kernel)."),
            ("bias", "What is added to each output channel, (num_filter,)."),
        ])
        .input_names_by(|attrs| {
            let n = if attrs.get::<DeconvolutionParam>().no_bias { 2 } else { 3 };
            ["data", "weight", "bias"][..n].iter().map(|s| (*s).to_owned()).collect()
        })
        .infer_shape(infer_shape)
        .infer_type(float_type)
        .gradient(Gradient::declared("_backward_Deconvolution", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
        }))
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call))));
    let backward = OpDef::new::<DeconvolutionParam>("_backward_Deconvolution")
        .kernel(widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call))));
    vec![forward, backward]
}

/// The spatial parameters, complete; `adj` is what remains of `target_shape` too.
struct Window {
    kernel: Tuple,
    stride: Tuple,
    dilate: Tuple,
    pad: Tuple,
    adj: Tuple,
}

/// `input` holds the spatial extents of the data, of which `target_shape` needs all.
fn window(param: &DeconvolutionParam, input: &[i64]) -> Result<Window> {
    let rank = param.kernel.len();
    if !(1..=3).contains(&rank) {
        return Err(Error::argument("kernel", "length", rank, "1, 2 or 3"));
    }
    if !param.num_filter.is_multiple_of(param.num_group) {
        let expected = format!("a multiple of num_group {}", param.num_group);
        return Err(Error::argument("num_filter", "value", param.num_filter, expected));
    }
    let mut w = Window {
        kernel: spatial(&param.kernel, "kernel", rank, 1, 1)?,
        stride: spatial(&param.stride, "stride", rank, 1, 1)?,
        dilate: spatial(&param.dilate, "dilate", rank, 1, 1)?,
        pad: spatial(&param.pad, "pad", rank, 0, 0)?,
        adj: spatial(&param.adj, "adj", rank, 0, 0)?,
    };
    let target = spatial(&param.target_shape, "target_shape", rank, 0, 0)?;
    if target.iter().any(|&t| t > 0) {
        for a in 0..rank {
            if input[a] < 0 {
                continue;
            }
            let reach = w.dilate[a] * (w.kernel[a] - 1) + 1;
            let full = (input[a] - 1).saturating_mul(w.stride[a]).saturating_add(reach);
            let cut = full - target[a];
            if cut < 0 {
                let expected = format!("at most {full} on spatial axis {a}");
                return Err(Error::argument(
                    "target_shape",
                    "value",
                    Shape::new(&target),
                    expected,
                ));
            }
            w.pad[a] = (cut + 1) / 2;
            w.adj[a] = cut % 2;
        }
    } else if let Some(a) = (0..rank).find(|&a| w.adj[a] >= w.stride[a]) {
        let expected = format!("less than stride {}", w.stride[a]);
        return Err(Error::argument("adj", "value", w.adj[a], expected));
    }
    Ok(w)
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &DeconvolutionParam = attrs.get();
    let rank = param.kernel.len() + 2;
    expect_rank(&inputs[0], "data", rank..=rank)?;
    let layout = Layout::or_default(param.layout.map(Layout::from), param.kernel.len())?;
    let mut data = layout.first(&inputs[0]);
    if !data.rank_known() {
        data = Shape::of_rank(rank);
    }
    let w = window(param, &data.dims()[2..])?;
    let groups = i64::from(param.num_group);
    let filters = i64::from(param.num_filter);
    let channels = data.dims()[1];
    if channels >= 0 && channels % groups != 0 {
        let expected = format!("channels in {groups} groups");
        return Err(Error::argument("data", "shape", &inputs[0], expected));
    }
    let mut weight = Shape::of_rank(rank);
    weight.dims_mut()[..2].copy_from_slice(&[channels, filters / groups]);
    weight.dims_mut()[2..].copy_from_slice(&w.kernel);
    assign_shape(&mut inputs[1], "weight", &layout.from_first(&weight))?;
    if !param.no_bias {
        assign_shape(&mut inputs[2], "bias", &Shape::new(&[filters]))?;
    }
    if inputs[0].rank_known() {
        let mut out = Shape::of_rank(rank);
        out.dims_mut()[..2].copy_from_slice(&[data.dims()[0], filters]);
        for a in 0..rank - 2 {
            let size = data.dims()[a + 2];
            if size >= 0 {
                let reach = w.dilate[a] * (w.kernel[a] - 1) + 1;
                let more = reach - 2 * w.pad[a] + w.adj[a];
                let extent = (size - 1).saturating_mul(w.stride[a]).saturating_add(more);
                if extent < 0 || (extent == 0 && size > 0) {
                    return Err(Error::argument(
                        "pad",
                        "value",
                        Shape::new(&w.pad),
                        "less, as nothing is left",
                    ));
                }
                out.dims_mut()[a + 2] = extent;
            }
        }
        assign_shape(&mut outputs[0], "output", &layout.from_first(&out))?;
        let known = layout.first(&outputs[0]);
        if data.dims()[0] < 0 {
            data.dims_mut()[0] = known.dims()[0];
            inputs[0] = layout.from_first(&data);
        }
    }
    complete(inputs, outputs)
}

/// The convolution that this is the transpose of: its image is the output, its output the data.
pub fn geometry(attrs: &Attrs, data: &View, out: &View) -> Result<(Layout, Conv)> {
    let param: &DeconvolutionParam = attrs.get();
    let layout = Layout::or_default(param.layout.map(Layout::from), param.kernel.len())?;
    let (x, y) = (layout.first(data.shape()), layout.first(out.shape()));
    let w = window(param, &x.dims()[2..])?;
    let groups = param.num_group as usize;
    let conv = Conv {
        batch: x.dims()[0] as usize,
        groups,
        in_c: param.num_filter as usize / groups,
        out_c: x.dims()[1] as usize / groups,
        input: three(&y.dims()[2..], 1),
        kernel: three(&w.kernel, 1),
        output: three(&x.dims()[2..], 1),
        stride: three(&w.stride, 1),
        pad: three(&w.pad, 0),
        dilate: three(&w.dilate, 1),
    };
    Ok((layout, conv))
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (layout, conv) = geometry(call.attrs, &call.inputs[0], &call.outputs[0])?;
    let [x, w] = [0, 1].map(|i| call.inputs[i].as_ptr::<T>());
    let y = call.outputs[0].as_ptr::<T>();
    let [sy, sw, sx] = sizes(&conv);
    with_first::<T>(layout, &conv, |room| {
        // SAFETY: inference gave the views these extents; the output overlaps no input.
        unsafe {
            let (x, w, to) = match room {
                None => (x, w, y),
                Some([y1, w1, x1]) => {
                    to_first(x, sx, x1);
                    to_first(w, sw, w1);
                    (x1, w1, y1)
                }
            };
            conv::backward_data(&conv, x, w, to);
            if let Some(bias) = call.inputs.get(2) {
                add_channels(bias.as_ptr::<T>(), sy, to);
            }
            if room.is_some() {
                swap_inner(to, sy, y);
            }
        }
        Ok(())
    })
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grad, data, _] = call.inputs else { unreachable!("declared dependencies") };
    let (layout, conv) = geometry(call.attrs, data, grad)?;
    let gradients = Gradients {
        grad: IMAGE,
        data: OUTPUT,
        // SAFETY: promised by the caller, with the output gradient as the image.
        to_data: |conv, dy, w, dx| unsafe { conv::forward::<T>(conv, dy, w, None, dx, None, None) },
        // SAFETY: as above.
        to_weight: |conv, x, dy, dw| unsafe { conv::backward_weight::<T>(conv, dy, x, dw) },
    };
    channels_first::backward(call, layout, &conv, &gradients)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        for (more, group) in [
            (&[][..], 1),
            (&[("stride", "(2,3)"), ("pad", "(1,0)"), ("adj", "(1,2)")], 1),
            (&[("num_group", "2"), ("dilate", "(2,1)")], 2),
            (&[("stride", "(2,2)"), ("target_shape", "(6,7)")], 1),
        ] {
            let p =
                [&[("kernel", "(2,3)"), ("num_filter", "4"), ("no_bias", "0")][..], more].concat();
            let inputs = [
                Tensor::noise(&[2, 2, 3, 3], 1),
                Tensor::noise(&[2, 4 / group, 2, 3], 2),
                Tensor::noise(&[4], 3),
            ];
            check_gradient("Deconvolution", &p, &inputs, &[0, 1, 2], true);
            check_half("Deconvolution", &p, &inputs, true);
        }
        let p = [("kernel", "(2,2)"), ("num_filter", "3"), ("layout", "NHWC"), ("no_bias", "0")];
        let inputs = [
            Tensor::noise(&[1, 2, 2, 2], 1),
            Tensor::noise(&[2, 2, 2, 3], 2),
            Tensor::noise(&[3], 3),
        ];
        check_gradient("Deconvolution", &p, &inputs, &[0, 1, 2], true);
    }

    #[test]
    fn shapes() {
        let infer = |p: &[(&str, &str)], d: &[i64]| infer_shapes("Deconvolution", p, &[Some(d)]);
        let base = [("kernel", "(4,4)"), ("stride", "(2,2)"), ("num_filter", "3")];
        let p = [&base[..], &[("target_shape", "(9,9)")]].concat();
        let (_, ins, outs) = infer(&p, &[1, 2, 4, 4]).unwrap();
        assert_eq!((ins[1].dims(), outs[0].dims()), (&[2, 3, 4, 4][..], &[1, 3, 9, 9][..]));
        let p = [&base[..], &[("pad", "(1,1)")]].concat();
        assert_eq!(infer(&p, &[1, 2, 4, 4]).unwrap().2[0].dims(), [1, 3, 8, 8]);
        let p = [&base[..], &[("target_shape", "(11,11)")]].concat();
        assert!(infer(&p, &[1, 2, 4, 4]).is_err());
        let p = [&base[..], &[("adj", "(2,0)")]].concat();
        assert!(infer(&p, &[1, 2, 4, 4]).is_err());
    }
}
