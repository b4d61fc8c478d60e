//! `Pooling` and its old form `Pooling_v1`.

use super::channels_first::to_first;
use super::infer::{complete, expect_rank, float_type};
use super::widening;
use super::window::{Layout, spatial, swap_inner, three};
use crate::error::{Error, Result};
use crate::kernels::pooling::registers::Pooled;
use crate::kernels::pooling::{Pool, PoolKind};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Tuple};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_real};

param_enum! {
    /// The reduction of a window.
    pub enum PoolType { Avg = "avg", Lp = "lp", Max = "max", Sum = "sum" }
}

param_enum! {
    /// How windows that do not fit entirely are handled.
    pub enum Convention { Full = "full", Same = "same", Valid = "valid" }
}

param_enum! {
    /// As [`PoolType`], without the p-norm.
    pub enum PoolTypeV1 { Avg = "avg", Max = "max", Sum = "sum" }
}

param_enum! {
    /// As [`Convention`], without `same`.
    pub enum ConventionV1 { Full = "full", Valid = "valid" }
}

params! {
    /// Parameters of `Pooling`.
    pub struct PoolingParam {
        kernel: Tuple, default(Tuple::new()), "Extents of a window: (w,), (h, w) or (d, h, w).";
        pool_type: PoolType, default(PoolType::Max), "What a window becomes.";
        global_pool: bool, default(false), "One window over the whole plane; kernel, stride and \
                                            pad are ignored.";
        cudnn_off: bool, default(false), "Accepted, without effect.";
        pooling_convention: Convention, default(Convention::Valid), "How output extents are \
             rounded.";
        stride: Tuple, default(Tuple::new()), "Steps between windows; default 1 on every axis.";
        pad: Tuple, default(Tuple::new()), "Elements put before and after each spatial axis; \
                                            default 0.";
        p_value: Option<i32>, default(None), "The p of pool_type='lp': 1, 2 or 3.";
        count_include_pad: Option<bool>, default(None), "Does an average count padding as \
                                                         elements? None is yes.";
        layout: Option<Layout>, default(None), "Order of the axes; None is channels first.";
    }
}

params! {
    /// Parameters of `Pooling_v1`.
    pub struct PoolingV1Param {
        kernel: Tuple, default(Tuple::new()), "Extents of a window: (h, w) or (d, h, w).";
        pool_type: PoolTypeV1, default(PoolTypeV1::Max), "What a window becomes.";
        global_pool: bool, default(false), "One window over the whole plane; kernel, stride and \
                                            pad are ignored.";
        pooling_convention: ConventionV1, default(ConventionV1::Valid), "How output extents are \
             rounded.";
        stride: Tuple, default(Tuple::new()), "Steps between windows; default 1 on every axis.";
        pad: Tuple, default(Tuple::new()), "Elements put before and after each spatial axis; \
                                            default 0.";
    }
}

const DOC: &str = r#"
Reduces windows of one, two or three spatial axes, each channel for itself.

A window of elements ``x`` becomes ``max(x)``, ``sum(x)``, their average, or
``(sum(abs(x)^p))^(1/p)``.

Notes
-----
With ``layout=None`` data is ``(N, C, W)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``. Output extents
are ``(in + 2 * pad - kernel) / stride + 1``, rounded down (``valid``) or up (``full``), or
``ceil(in / stride)`` (``same``, one spatial axis only). Padding never wins a maximum. An average
divides by the window with its padding, unless ``count_include_pad=False``; what a ``full`` window
has beyond the padding does not count. The gradient of a maximum goes to the first of equal
elements. With ``global_pool=True`` output extents are 1. One dtype: float16 (calculated in
float32), float32 or float64. A window larger than the padded data, and padding not smaller than the
window, are errors.

Examples
--------
>>> x = nd.array([[[1, 2, 3, 4, 5]]])
>>> nd.Pooling(x, kernel=(2,), stride=(2,), pool_type='avg', pooling_convention='full')
[[[1.5 3.5 5. ]]]
"#;

const AT_MAX: &str = r#"
For each window of ``data`` the element of ``values`` where the window's first maximum is: the
derivative of max ``Pooling`` along ``values``.

Notes
-----
Parameters, extents and dtypes are those of `Pooling`, whose ``pool_type`` counts as ``max``;
``values`` has the shape and dtype of the data. A window of padding alone gives 0. There is no
gradient.

Examples
--------
>>> x, v = nd.array([[[1, 5, 2, 3]]]), nd.array([[[10, 20, 30, 40]]])
>>> nd._internal._pooling_at_max(v, x, kernel=(2,), stride=(2,))
[[[20. 40.]]]
"#;

pub fn operators() -> Vec<OpDef> {
    let finish = |def: OpDef, back: &str| {
        def.doc(DOC)
            .inputs_are(&[("data", "The images (N, C, ...).")])
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .gradient(Gradient::declared(back, |_, _, _| {
                vec![Dep::OutGrad(0), Dep::Input(0), Dep::Output(0)]
            }))
            .kernel(widening::cpu(
                |call| with_real!(call.inputs[0].dtype(), T => forward::<T>(call)),
            ))
    };
    let back = |def: OpDef| {
        def.kernel(widening::cpu(
            |call| with_real!(call.inputs[0].dtype(), T => backward::<T>(call)),
        ))
    };
    vec![
        finish(OpDef::new::<PoolingParam>("Pooling"), "_backward_Pooling")
            .aliases(&["_npx_pooling"]),
        back(OpDef::new::<PoolingParam>("_backward_Pooling")),
        finish(OpDef::new::<PoolingV1Param>("Pooling_v1"), "_backward_Pooling_v1"),
        back(OpDef::new::<PoolingV1Param>("_backward_Pooling_v1")),
        OpDef::new::<PoolingParam>("_pooling_at_max")
            .doc(AT_MAX)
            .inputs_are(&[
                ("values", "What is chosen from."),
                ("data", "The images, of that shape."),
            ])
            .infer_shape(|attrs, inputs, outputs| {
                let known = inputs[0].clone();
                assign_shape(&mut inputs[1], "data", &known)?;
                infer_shape(attrs, inputs, outputs)
            })
            .infer_type(float_type)
            .gradient(Gradient::None)
            .kernel(widening::cpu(
                |call| with_real!(call.inputs[0].dtype(), T => at_max::<T>(call)),
            )),
    ]
}

/// The parameters of either form.
fn param(attrs: &Attrs) -> PoolingParam {
    let Some(old) = attrs.typed().downcast_ref::<PoolingV1Param>() else {
        return attrs.get::<PoolingParam>().clone();
    };
    PoolingParam {
        kernel: old.kernel.clone(),
        pool_type: match old.pool_type {
            PoolTypeV1::Avg => PoolType::Avg,
            PoolTypeV1::Max => PoolType::Max,
            PoolTypeV1::Sum => PoolType::Sum,
        },
        global_pool: old.global_pool,
        cudnn_off: false,
        pooling_convention: match old.pooling_convention {
            ConventionV1::Full => Convention::Full,
            ConventionV1::Valid => Convention::Valid,
        },
        stride: old.stride.clone(),
        pad: old.pad.clone(),
        p_value: None,
        count_include_pad: None,
        layout: None,
    }
}

/// Layout, kernel, stride and pad for data of `rank` axes.
fn window(param: &PoolingParam, rank: usize) -> Result<(Layout, Tuple, Tuple, Tuple)> {
    let spatial_rank = rank - 2;
    let layout = Layout::or_default(param.layout, spatial_rank)?;
    if param.global_pool {
        let all = |v| Tuple::from_elem(v, spatial_rank);
        return Ok((layout, all(1), all(1), all(0)));
    }
    if param.kernel.len() != spatial_rank {
        let expected = format!("{spatial_rank} numbers for data of {rank} axes");
        return Err(Error::argument("kernel", "value", Shape::new(&param.kernel), expected));
    }
    // What is beyond the axes is ignored, as in MXNet: networks with pad=(1, 1, 1, 1) rely on it.
    let ours = |tuple: &Tuple| tuple.iter().take(spatial_rank).copied().collect::<Tuple>();
    let kernel = spatial(&param.kernel, "kernel", spatial_rank, 1, 1)?;
    let stride = spatial(&ours(&param.stride), "stride", spatial_rank, 1, 1)?;
    let pad = spatial(&ours(&param.pad), "pad", spatial_rank, 0, 0)?;
    if pad.iter().zip(&kernel).any(|(p, k)| p >= k) {
        let expected = format!("less than kernel {}", Shape::new(&kernel));
        return Err(Error::argument("pad", "value", Shape::new(&pad), expected));
    }
    Ok((layout, kernel, stride, pad))
}

pub fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let param = param(attrs);
    expect_rank(&inputs[0], "data", 3..=5)?;
    if !inputs[0].rank_known() {
        return Ok(false);
    }
    let rank = inputs[0].ndim();
    let (layout, kernel, stride, pad) = window(&param, rank)?;
    if param.pooling_convention == Convention::Same && rank != 3 {
        return Err(Error::argument("pooling_convention", "value", "same", "one spatial axis"));
    }
    if param.pool_type == PoolType::Lp && !matches!(param.p_value, Some(1..=3)) {
        let got = param.p_value.map_or("None".to_owned(), |p| p.to_string());
        return Err(Error::argument("p_value", "value", got, "1, 2 or 3"));
    }
    let data = layout.first(&inputs[0]);
    let mut out = data.clone();
    for a in 0..rank - 2 {
        let size = data.dims()[a + 2];
        if param.global_pool {
            out.dims_mut()[a + 2] = 1;
        } else if size >= 0 {
            let room = size.saturating_add(2 * pad[a]) - kernel[a];
            if room < 0 && param.pooling_convention != Convention::Same {
                let expected = format!("at least {} on axis {} with padding", kernel[a], a + 2);
                return Err(Error::argument("data", "shape", &inputs[0], expected));
            }
            out.dims_mut()[a + 2] = match param.pooling_convention {
                Convention::Valid => room / stride[a] + 1,
                Convention::Full => room.saturating_add(stride[a] - 1) / stride[a] + 1,
                Convention::Same => size.saturating_add(stride[a] - 1) / stride[a],
            };
        }
    }
    assign_shape(&mut outputs[0], "output", &layout.from_first(&out))?;
    // Batch and channels follow from the output.
    let known = layout.first(&outputs[0]);
    let mut data = data;
    for a in 0..2 {
        if data.dims()[a] < 0 {
            data.dims_mut()[a] = known.dims()[a];
        }
    }
    inputs[0] = layout.from_first(&data);
    complete(inputs, outputs)
}

pub fn geometry(attrs: &Attrs, data: &View, out: &View) -> Result<(Layout, Pool)> {
    let param = param(attrs);
    let (layout, kernel, stride, pad) = window(&param, data.ndim())?;
    let (x, y) = (layout.first(data.shape()), layout.first(out.shape()));
    let input = three(&x.dims()[2..], 1);
    let pool = Pool {
        kind: match param.pool_type {
            PoolType::Max => PoolKind::Max,
            PoolType::Sum => PoolKind::Sum,
            PoolType::Avg => {
                PoolKind::Average { with_pad: param.count_include_pad.unwrap_or(true) }
            }
            PoolType::Lp => PoolKind::Norm { p: param.p_value.unwrap_or(2).unsigned_abs() },
        },
        planes: x.product(0..2),
        input,
        kernel: if param.global_pool { input } else { three(&kernel, 1) },
        output: three(&y.dims()[2..], 1),
        stride: three(&stride, 1),
        pad: three(&pad, 0),
    };
    Ok((layout, pool))
}

/// Shape of a view as (batch, channels, positions).
fn sizes(layout: Layout, view: &View) -> (usize, usize, usize) {
    let s = layout.first(view.shape());
    (s.product(0..1), s.product(1..2), s.product(2..s.ndim()))
}

fn forward<T: Real + Pooled>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let (data, out) = (&call.inputs[0], &call.outputs[0]);
    let (layout, pool) = geometry(call.attrs, data, out)?;
    // SAFETY: inference gave the views these extents; the output overlaps no input.
    unsafe {
        if !layout.channels_last() {
            pool.forward::<T>(data.as_ptr(), out.as_ptr());
            return Ok(());
        }
        with_scratch(data.size() + out.size(), |room: &mut [T]| {
            let (x, y) = room.split_at_mut(data.size());
            to_first(data.as_ptr(), sizes(layout, data), x.as_mut_ptr());
            pool.forward(x.as_ptr(), y.as_mut_ptr());
            swap_inner(y.as_ptr(), sizes(layout, out), out.as_ptr());
        });
    }
    Ok(())
}

fn at_max<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let ([values, data], out) = (call.inputs, &call.outputs[0]) else { unreachable!("two inputs") };
    let (layout, pool) = geometry(call.attrs, data, out)?;
    // SAFETY: inference gave the views these extents; the output overlaps no input.
    unsafe {
        if !layout.channels_last() {
            pool.at_maxima::<T>(values.as_ptr(), data.as_ptr(), out.as_ptr());
            return Ok(());
        }
        with_scratch(2 * data.size() + out.size(), |room: &mut [T]| {
            let (v, rest) = room.split_at_mut(data.size());
            let (x, y) = rest.split_at_mut(data.size());
            to_first(values.as_ptr(), sizes(layout, data), v.as_mut_ptr());
            to_first(data.as_ptr(), sizes(layout, data), x.as_mut_ptr());
            pool.at_maxima(v.as_ptr(), x.as_ptr(), y.as_mut_ptr());
            swap_inner(y.as_ptr(), sizes(layout, out), out.as_ptr());
        });
    }
    Ok(())
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let [grad, data, out] = call.inputs else { unreachable!("declared dependencies") };
    let (layout, pool) = geometry(call.attrs, data, out)?;
    let target = &call.outputs[0];
    // SAFETY: the gradient has the extents of the data and overlaps no input.
    unsafe {
        if !layout.channels_last() {
            pool.backward::<T>(data.as_ptr(), out.as_ptr(), grad.as_ptr(), target.as_ptr());
            return Ok(());
        }
        with_scratch(2 * (data.size() + out.size()), |room: &mut [T]| {
            let (x, rest) = room.split_at_mut(data.size());
            let (dx, rest) = rest.split_at_mut(data.size());
            let (y, dy) = rest.split_at_mut(out.size());
            let (sx, sy) = (sizes(layout, data), sizes(layout, out));
            to_first(data.as_ptr(), sx, x.as_mut_ptr());
            to_first(out.as_ptr(), sy, y.as_mut_ptr());
            to_first(grad.as_ptr(), sy, dy.as_mut_ptr());
            pool.backward(x.as_ptr(), y.as_ptr(), dy.as_ptr(), dx.as_mut_ptr());
            swap_inner(dx.as_ptr(), sx, target.as_ptr());
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    // The figures were read off MXNet 1.9.1.
    #[test]
    fn averages_of_a_line() {
        let x = [Tensor::of(&[1, 1, 7], &[1., 2., 3., 4., 5., 6., 7.])];
        for (convention, k, s, pad, want) in [
            ("valid", "(2,)", "(2,)", "(0,)", &[1.5, 3.5, 5.5][..]),
            ("full", "(2,)", "(2,)", "(0,)", &[1.5, 3.5, 5.5, 7.]),
            ("full", "(3,)", "(2,)", "(1,)", &[1., 3., 5., 13. / 3.]),
            ("full", "(2,)", "(3,)", "(0,)", &[1.5, 4.5, 7.]),
        ] {
            let p = [
                ("kernel", k),
                ("stride", s),
                ("pad", pad),
                ("pool_type", "avg"),
                ("pooling_convention", convention),
            ];
            let got = values("Pooling", &p, &x);
            assert!(
                got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12) && got.len() == want.len(),
                "{got:?}"
            );
        }
        let lp = [("kernel", "(2,)"), ("pool_type", "lp"), ("p_value", "2")];
        assert!((values("Pooling", &lp, &x)[0] - 5f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn padding_counts_as_asked() {
        let x = [Tensor::of(&[1, 1, 4, 4], &[1.; 16])];
        let base = [
            ("kernel", "(3,3)"),
            ("stride", "(2,2)"),
            ("pad", "(1,1)"),
            ("pool_type", "avg"),
            ("pooling_convention", "full"),
        ];
        let with = values("Pooling", &base, &x);
        let want = [4. / 9., 6. / 9., 3. / 9., 6. / 9., 1., 0.5, 3. / 9., 0.5, 0.25];
        assert!(with.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-12), "{with:?}");
        let p = [&base[..], &[("count_include_pad", "False")]].concat();
        assert_eq!(values("Pooling", &p, &x), [1.; 9]);
    }

    #[test]
    fn gradients_match_differences() {
        for kind in ["max", "avg", "sum", "lp"] {
            let p = [
                ("pool_type", kind),
                ("p_value", "3"),
                ("kernel", "(2,3)"),
                ("stride", "(2,1)"),
                ("pad", "(1,1)"),
                ("pooling_convention", "full"),
            ];
            let x = [Tensor::noise(&[2, 2, 4, 5], 1)];
            check_gradient("Pooling", &p, &x, &[0], true);
            check_half("Pooling", &p, &x, true);
            let global = [("pool_type", kind), ("p_value", "2"), ("global_pool", "1")];
            check_gradient("Pooling", &global, &x, &[0], true);
            let last =
                [("pool_type", kind), ("p_value", "1"), ("kernel", "(2,2)"), ("layout", "NHWC")];
            check_gradient("Pooling", &last, &x, &[0], true);
        }
        let v1 = [("kernel", "(2,2,2)"), ("pool_type", "max")];
        check_gradient("Pooling_v1", &v1, &[Tensor::noise(&[1, 2, 3, 3, 3], 1)], &[0], true);
    }

    #[test]
    fn the_first_maximum_gets_the_gradient() {
        let ran =
            run("Pooling", &[("kernel", "(3,)")], &[Tensor::of(&[1, 1, 3], &[2., 2., 1.])], true)
                .unwrap();
        assert_eq!(
            ran.gradients(&[Tensor::of(&[1, 1, 1], &[5.])]).unwrap()[0].values(),
            [5., 0., 0.]
        );
    }

    #[test]
    fn bad_windows_are_refused() {
        let infer = |p: &[(&str, &str)], d: &[i64]| {
            infer_shapes("Pooling", p, &[Some(d)]).map(|r| r.2[0].dims().to_vec())
        };
        assert_eq!(infer(&[("global_pool", "1")], &[2, 3, 4, 5]).unwrap(), [2, 3, 1, 1]);
        assert_eq!(
            infer(
                &[("kernel", "(2,)"), ("stride", "(2,)"), ("pooling_convention", "same")],
                &[1, 1, 7]
            )
            .unwrap(),
            [1, 1, 4]
        );
        assert!(infer(&[("kernel", "(5,5)")], &[1, 1, 4, 4]).is_err());
        assert!(infer(&[("kernel", "(2,2)"), ("pad", "(2,2)")], &[1, 1, 4, 4]).is_err());
        assert!(infer(&[], &[1, 1, 4, 4]).is_err());
        assert!(infer(&[("kernel", "(2,2)"), ("pool_type", "lp")], &[1, 1, 4, 4]).is_err());
    }
}
