//! `Convolution` and its old form `Convolution_v1`.

use super::channels_first::{self, Gradients, IMAGE, OUTPUT, sizes, to_first, with_first};
use super::infer::{complete, expect_rank, float_type};
use super::widening;
use super::window::{ConvLayout, CudnnTune, Layout, spatial, swap_inner, three};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::conv::{self, Conv};
use crate::kernels::real::Real;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_real};

params! {
    /// Parameters of `Convolution`.
    pub struct ConvolutionParam {
        kernel: Tuple, required, "Extents of a filter: (w,), (h, w) or (d, h, w).";
        stride: Tuple, default(Tuple::new()), "Steps between output positions; default 1 on every \
                                               axis.";
        dilate: Tuple, default(Tuple::new()), "Steps between filter elements; default 1 on every \
                                               axis.";
        pad: Tuple, default(Tuple::new()), "Zeros put before and after each spatial axis; default \
                                            0.";
        num_filter: u32, required.ge(1.0), "Number of filters, the channels of the output.";
        num_group: u32, default(1).ge(1.0), "Number of groups that channels and filters are \
                                             divided into.";
        workspace: u64, default(1024), "Accepted, without effect.";
        no_bias: bool, default(false), "Leave out the input bias.";
        cudnn_tune: Option<CudnnTune>, default(None), "Accepted, without effect.";
        cudnn_off: bool, default(false), "Accepted, without effect.";
        layout: Option<ConvLayout>, default(None), "Order of the axes; None is channels first.";
    }
}

const DOC: &str = r#"
Convolution (cross-correlation: filters are not flipped) over one, two or three spatial axes: ``y[n,
f, i, j] = b[f] + sum over c, u, v of x[n, c, i*s + u*d - p, j*s + v*d - p] * w[f, c, u, v]``.

Notes
-----
With ``layout=None`` data is ``(N, C, W)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``, by the length
of ``kernel``; weight is ``(num_filter, C / num_group, *kernel)`` and bias ``(num_filter,)``, both
inferred from the data. Output extents are ``floor((in + 2 * pad - dilate * (kernel - 1) - 1) /
stride) + 1``. With ``num_group=g`` channels and filters are divided into ``g`` groups that do not
see each other. In channels-last layouts the weight is ``(num_filter, *kernel, C / num_group)``. One
dtype: float16 (calculated in float32), float32 or float64. A filter larger than the padded input,
or channels that do not divide into the groups, are errors.

Examples
--------
>>> x = nd.ones((1, 1, 3, 3))
>>> nd.Convolution(x, nd.ones((1, 1, 2, 2)), nd.array([1]), kernel=(2, 2), num_filter=1)
[[[[5. 5.]
   [5. 5.]]]]
"#;

pub fn operators() -> Vec<OpDef> {
    let define = |name: &str| {
        OpDef::new::<ConvolutionParam>(name)
            .doc(DOC)
            .expensive()
            .inputs_are(&[
                ("data", "The images (N, C, ...)."),
                ("weight", "The filters (num_filter, C / num_group, *kernel)."),
                ("bias", "What is added to each filter's output, (num_filter,)."),
            ])
            .input_names_by(|attrs| {
                let n = if attrs.get::<ConvolutionParam>().no_bias { 2 } else { 3 };
                ["data", "weight", "bias"][..n].iter().map(|s| (*s).to_owned()).collect()
            })
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::declared("_backward_Convolution", |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)]
            }))
            .kernel(
                widening::cpu(|call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)))
                    .reports_elements(reports)
                    .reads_to_the_end()
                    .keeps_what_it_makes_of(1),
            )
    };
    vec![
        define("Convolution").aliases(&["_npx_convolution", "ChannelwiseConvolution"]),
        define("Convolution_v1"),
        OpDef::new::<ConvolutionParam>("_backward_Convolution").kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call)),
        )),
    ]
}

/// The spatial parameters, complete.
struct Window {
    layout: Layout,
    kernel: Tuple,
    stride: Tuple,
    dilate: Tuple,
    pad: Tuple,
}

fn window(param: &ConvolutionParam) -> Result<Window> {
    let rank = param.kernel.len();
    if !(1..=3).contains(&rank) {
        return Err(Error::argument("kernel", "length", rank, "1, 2 or 3"));
    }
    if !param.num_filter.is_multiple_of(param.num_group) {
        return Err(Error::argument(
            "num_filter",
            "value",
            param.num_filter,
            format!("a multiple of num_group {}", param.num_group),
        ));
    }
    Ok(Window {
        layout: Layout::or_default(param.layout.map(Layout::from), rank)?,
        kernel: spatial(&param.kernel, "kernel", rank, 1, 1)?,
        stride: spatial(&param.stride, "stride", rank, 1, 1)?,
        dilate: spatial(&param.dilate, "dilate", rank, 1, 1)?,
        pad: spatial(&param.pad, "pad", rank, 0, 0)?,
    })
}

pub fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param: &ConvolutionParam = attrs.get();
    let w = window(param)?;
    let rank = w.kernel.len() + 2;
    expect_rank(&inputs[0], "data", rank..=rank)?;
    expect_rank(&outputs[0], "output", rank..=rank)?;
    let filters = i64::from(param.num_filter);
    let mut data = w.layout.first(&inputs[0]);
    let mut weight = Shape::of_rank(rank);
    weight.dims_mut()[0] = filters;
    weight.dims_mut()[2..].copy_from_slice(&w.kernel);
    if data.rank_known() {
        let channels = data.dims()[1];
        if channels >= 0 {
            let groups = i64::from(param.num_group);
            if channels % groups != 0 {
                let expected = format!("channels in {groups} groups");
                return Err(Error::argument("data", "shape", &inputs[0], expected));
            }
            weight.dims_mut()[1] = channels / groups;
        }
        let mut out = Shape::of_rank(rank);
        out.dims_mut()[0] = data.dims()[0];
        out.dims_mut()[1] = filters;
        for a in 0..rank - 2 {
            let size = data.dims()[a + 2];
            let reach = w.dilate[a] * (w.kernel[a] - 1) + 1;
            let padded = size.saturating_add(2 * w.pad[a]);
            if size >= 0 && reach > padded {
                let expected = format!("at least {reach} on axis {} with padding", a + 2);
                return Err(Error::argument("data", "shape", &inputs[0], expected));
            }
            if size >= 0 {
                out.dims_mut()[a + 2] = (padded - reach) / w.stride[a] + 1;
            }
        }
        assign_shape(&mut outputs[0], "output", &w.layout.from_first(&out))?;
    }
    if outputs[0].rank_known() {
        // The output always determines the batch, and with stride 1 the spatial extents.
        let out = w.layout.first(&outputs[0]);
        let mut learnt = Shape::of_rank(rank);
        learnt.dims_mut()[0] = out.dims()[0];
        for a in 0..rank - 2 {
            let size = out.dims()[a + 2];
            if w.stride[a] == 1 && size >= 0 {
                let reach = w.dilate[a] * (w.kernel[a] - 1) - 2 * w.pad[a];
                learnt.dims_mut()[a + 2] = size.saturating_add(reach);
            }
        }
        assign_shape(&mut data, "data", &learnt)?;
        inputs[0] = w.layout.from_first(&data);
    }
    assign_shape(&mut inputs[1], "weight", &w.layout.from_first(&weight))?;
    if !param.no_bias {
        assign_shape(&mut inputs[2], "bias", &Shape::new(&[filters]))?;
    }
    complete(inputs, outputs)
}

/// The geometry of one call.
pub fn geometry(attrs: &Attrs, data: &View, out: &View) -> Result<(Layout, Conv)> {
    let param: &ConvolutionParam = attrs.get();
    let w = window(param)?;
    let (x, y) = (w.layout.first(data.shape()), w.layout.first(out.shape()));
    let groups = param.num_group as usize;
    let conv = Conv {
        batch: x.dims()[0] as usize,
        groups,
        in_c: x.dims()[1] as usize / groups,
        out_c: param.num_filter as usize / groups,
        input: three(&x.dims()[2..], 1),
        kernel: three(&w.kernel, 1),
        output: three(&y.dims()[2..], 1),
        stride: three(&w.stride, 1),
        pad: three(&w.pad, 0),
        dilate: three(&w.dilate, 1),
    };
    Ok((w.layout, conv))
}

/// An output of at least this many terms takes far longer than the report of a few hundred outputs.
const DEEP: usize = 128;

/// True if the kernel reports the elements that it has finished, so that the next step of a chain
/// may start on them. It must write the output itself, not a copy in another order or dtype, and
/// finish long stretches at a time, as filters of one element or over one channel do; others finish
/// a few rows of one channel.
fn reports(attrs: &Attrs, inputs: &[View]) -> bool {
    let param: &ConvolutionParam = attrs.get();
    let is_last = param.layout.is_some_and(|layout| Layout::from(layout).channels_last());
    if is_last || inputs[0].dtype() == DType::F16 {
        return false;
    }
    let weight = inputs[1].shape();
    let (channels, taps) = (weight.product(1..2), weight.product(2..weight.ndim()));
    taps == 1 || channels == 1 && param.num_group > 1 || channels * taps >= DEEP
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (layout, conv) = geometry(call.attrs, &call.inputs[0], &call.outputs[0])?;
    let [x, w] = [0, 1].map(|i| call.inputs[i].as_ptr::<T>());
    let bias = call.inputs.get(2).map(|b| b.as_ptr::<T>().cast_const());
    let y = call.outputs[0].as_ptr::<T>();
    let [sx, sw, sy] = sizes(&conv);
    with_first::<T>(layout, &conv, |room| {
        // SAFETY: inference gave the views these extents; the output overlaps no input.
        unsafe {
            match room {
                None => conv::forward(&conv, x, w, bias, y, call.around.after, call.around.keeper),
                Some([x1, w1, y1]) => {
                    to_first(x, sx, x1);
                    to_first(w, sw, w1);
                    conv::forward(&conv, x1, w1, bias, y1, None, call.around.keeper);
                    swap_inner(y1, sy, y);
                }
            }
        }
        Ok(())
    })
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let [grad, data, _] = call.inputs else { unreachable!("declared dependencies") };
    let (layout, conv) = geometry(call.attrs, data, grad)?;
    let gradients = Gradients {
        grad: OUTPUT,
        data: IMAGE,
        to_data: conv::backward_data::<T>,
        to_weight: conv::backward_weight::<T>,
    };
    channels_first::backward(call, layout, &conv, &gradients)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    const BASE: [(&str, &str); 2] = [("kernel", "(2,3)"), ("num_filter", "4")];

    #[test]
    fn gradients_match_differences() {
        let with = |more: &[(&'static str, &'static str)]| [&BASE[..], more].concat();
        for more in [
            &[][..],
            &[("stride", "(2,1)"), ("pad", "(1,2)"), ("dilate", "(2,1)")],
            &[("num_group", "2")],
        ] {
            let p = with(more);
            let c = if more.len() == 1 { 2 } else { 4 };
            let inputs = [
                Tensor::noise(&[2, 4, 4, 5], 1),
                Tensor::noise(&[4, c, 2, 3], 2),
                Tensor::noise(&[4], 3),
            ];
            check_gradient("Convolution", &p, &inputs, &[0, 1, 2], true);
            check_half("Convolution", &p, &inputs, true);
        }
        let line = [("kernel", "(3,)"), ("num_filter", "2"), ("no_bias", "1")];
        let inputs = [Tensor::noise(&[2, 3, 6], 1), Tensor::noise(&[2, 3, 3], 2)];
        check_gradient("Convolution_v1", &line, &inputs, &[0, 1], true);
        let cube = [("kernel", "(2,2,1)"), ("num_filter", "2"), ("no_bias", "1")];
        let inputs = [Tensor::noise(&[1, 2, 3, 3, 2], 1), Tensor::noise(&[2, 2, 2, 2, 1], 2)];
        check_gradient("Convolution", &cube, &inputs, &[0, 1], true);
    }

    #[test]
    fn channels_last_gives_the_same() {
        let p = [("kernel", "(2,2)"), ("num_filter", "3"), ("layout", "NHWC"), ("pad", "(1,0)")];
        let inputs = [
            Tensor::noise(&[2, 3, 4, 2], 1),
            Tensor::noise(&[3, 2, 2, 2], 2),
            Tensor::noise(&[3], 3),
        ];
        check_gradient("Convolution", &p, &inputs, &[0, 1, 2], true);
        let one = [("kernel", "(1,1)"), ("num_filter", "1"), ("layout", "NHWC"), ("no_bias", "1")];
        let x = Tensor::of(&[1, 1, 2, 2], &[1., 2., 3., 4.]);
        let w = Tensor::of(&[1, 1, 1, 2], &[1., 10.]);
        assert_eq!(values("Convolution", &one, &[x, w]), [21., 43.]);
    }

    #[test]
    fn shapes_flow_both_ways_and_bad_ones_are_refused() {
        let infer = |p: &[(&str, &str)], d: &[i64]| infer_shapes("Convolution", p, &[Some(d)]);
        let (known, ins, outs) = infer(&BASE, &[2, 6, 5, 5]).unwrap();
        assert!(known);
        assert_eq!((ins[1].dims(), outs[0].dims()), (&[4, 6, 2, 3][..], &[2, 4, 4, 3][..]));
        let (known, ins, outs) = infer(&BASE, &[-1, 6, -1, 5]).unwrap();
        assert!(!known);
        assert_eq!((ins[1].dims(), outs[0].dims()), (&[4, 6, 2, 3][..], &[-1, 4, -1, 3][..]));
        assert!(infer(&BASE, &[2, 6, 1, 5]).is_err());
        assert!(infer(&BASE, &[2, 6, 5]).is_err());
        assert!(
            infer(&[("kernel", "(1,1)"), ("num_filter", "4"), ("num_group", "2")], &[1, 3, 1, 1])
                .is_err()
        );
        assert!(
            infer(&[("kernel", "(1,1)"), ("num_filter", "3"), ("num_group", "2")], &[1, 2, 1, 1])
                .is_err()
        );
        assert!(
            infer(&[("kernel", "(1,1)"), ("num_filter", "3"), ("stride", "(0,1)")], &[1, 2, 1, 1])
                .is_err()
        );
    }

    #[test]
    fn an_empty_batch_has_zero_weight_gradients() {
        let inputs = [
            Tensor::noise(&[0, 2, 3, 3], 1),
            Tensor::noise(&[4, 2, 2, 3], 2),
            Tensor::noise(&[4], 3),
        ];
        let ran = run("Convolution", &BASE, &inputs, true).unwrap();
        let g = ran.gradients(&[ran.outputs[0].clone()]).unwrap();
        assert!(g[1].values().iter().chain(&g[2].values()).all(|&v| v == 0.0));
    }
}
