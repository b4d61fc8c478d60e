//! `DeformableConvolution` and `ModulatedDeformableConvolution`: convolutions whose filters reach
//! to learnt places. The elements that a filter meets are gathered into columns, one image at a
//! time, and multiplied by the filters as matrices.

use super::deformable_columns::{Sampling, gather, scatter};
use crate::error::{Error, Result};
use crate::kernels::gemm::{Mat, Threads, gemm};
use crate::kernels::real::Real;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Tuple};
use crate::ops::nn::infer::{complete, float_type};
use crate::ops::nn::widening;
use crate::ops::nn::window::spatial;
use crate::shape::Shape;
use crate::{param_enum, params, with_real};

param_enum! {
    /// Order of the axes.
    pub enum DeformableLayout { Ncdhw = "NCDHW", Nchw = "NCHW", Ncw = "NCW" }
}

/// Defines the parameters of one operator: those of both, with `more` before the layout.
macro_rules! deformable_params {
    ($(#[$meta:meta])* $name:ident { modulated: $modulated:literal, $($more:tt)* }) => {
        params! {
            $(#[$meta])*
            pub struct $name {
                kernel: Tuple, required, "Extents of a filter: (h, w).";
                stride: Tuple, default(Tuple::new()), "Steps between output positions; default 1 \
                                                       on both axes.";
                dilate: Tuple, default(Tuple::new()), "Steps between filter elements; default 1 on \
                                                       both axes.";
                pad: Tuple, default(Tuple::new()), "Zeros put before and after both axes; default \
                                                    0.";
                num_filter: u32, required.ge(1.0), "Number of filters, the channels of the output.";
                num_group: u32, default(1).ge(1.0), "Number of groups that channels and filters \
                                                     are divided into.";
                num_deformable_group: u32, default(1).ge(1.0), "Number of groups of channels that \
                     share offsets.";
                workspace: u64, default(1024), "Accepted, without effect.";
                no_bias: bool, default(false), "Leave out the input bias.";
                $($more)*
                layout: Option<DeformableLayout>, default(None), "Accepted as NCHW.";
            }
        }

        impl From<&$name> for Common {
            fn from(p: &$name) -> Self {
                Common {
                    kernel: p.kernel.clone(),
                    stride: p.stride.clone(),
                    dilate: p.dilate.clone(),
                    pad: p.pad.clone(),
                    filters: p.num_filter.into(),
                    groups: p.num_group.into(),
                    offset_groups: p.num_deformable_group.into(),
                    no_bias: p.no_bias,
                    modulated: $modulated,
                }
            }
        }
    };
}

deformable_params! {
    /// Parameters of `_contrib_DeformableConvolution`.
    DeformableParam { modulated: false, }
}

deformable_params! {
    /// Parameters of `_contrib_ModulatedDeformableConvolution`.
    ModulatedParam {
        modulated: true,
        im2col_step: u32, default(64), "Accepted, without effect.";
    }
}

const PLAIN: &str = r#"
Convolution whose filters read, bilinearly, at places moved by offsets: where `Convolution` reads
element ``(i*s + u*d - p, j*s + v*d - p)``, this reads that place plus an offset for every ``(u,
v)`` and ``(i, j)``.

Notes
-----
Data ``(N, C, H, W)``, offset ``(N, 2 * num_deformable_group * kernel, h, w)`` with rows and columns
in turn, weight ``(num_filter, C / num_group, *kernel)``, bias ``(num_filter,)``; the output ``(N,
num_filter, h, w)`` has the extents of a `Convolution`. Places outside of the image read 0; between
the last element and the border of the image they read the last element. One dtype: float16
(calculated in float32), float32 or float64.

Examples
--------
>>> x, offset = nd.array([[[[1, 2], [3, 4]]]]), nd.zeros((1, 2, 2, 2)) + 0.5
>>> nd.contrib.DeformableConvolution(x, offset, nd.ones((1, 1, 1, 1)), kernel=(1, 1), num_filter=1,
...     no_bias=True)
[[[[2.5 3. ]
   [3.5 4. ]]]]

References
----------
J. Dai et al., Deformable Convolutional Networks, ICCV 2017.
"#;

const MODULATED: &str = r#"
As `DeformableConvolution`, with a factor for every element that a filter reads.

Notes
-----
Data ``(N, C, H, W)``, offset ``(N, 2 * num_deformable_group * kernel, h, w)``, mask ``(N,
num_deformable_group * kernel, h, w)``, weight ``(num_filter, C / num_group, *kernel)``, bias
``(num_filter,)``. Elements outside of the image are 0. One dtype: float16 (calculated in float32),
float32 or float64.

Examples
--------
>>> x, offset, mask = nd.array([[[[1, 2], [3, 4]]]]), nd.zeros((1, 2, 2, 2)), nd.zeros((1, 1, 2,
...     2)) + 0.5
>>> f = nd.contrib.ModulatedDeformableConvolution
>>> f(x, offset, mask, nd.ones((1, 1, 1, 1)), kernel=(1, 1), num_filter=1, no_bias=True)
[[[[0.5 1. ]
   [1.5 2. ]]]]

References
----------
X. Zhu et al., Deformable ConvNets v2: More Deformable, Better Results, CVPR 2019.
"#;

const NAMES: [&str; 5] = ["data", "offset", "mask", "weight", "bias"];

/// The names of the inputs, with or without mask and bias.
fn names(modulated: bool, no_bias: bool) -> Vec<String> {
    let kept =
        NAMES.into_iter().filter(|n| (*n != "mask" || modulated) && (*n != "bias" || !no_bias));
    kept.map(str::to_owned).collect()
}

pub fn operators() -> Vec<OpDef> {
    let docs = [
        ("data", "The images (N, C, H, W)."),
        ("offset", "Offsets in rows and columns (N, 2 * groups * kernel, h, w)."),
        ("mask", "Factors (N, groups * kernel, h, w)."),
        ("weight", "The filters (num_filter, C / num_group, *kernel)."),
        ("bias", "What is added to each filter's output, (num_filter,)."),
    ];
    let define = |def: OpDef, modulated: bool, back: &str| {
        let docs: Vec<_> = docs.into_iter().filter(|d| modulated || d.0 != "mask").collect();
        def.inputs_are(&docs)
            .input_names_by(move |attrs| names(modulated, param(attrs).no_bias))
            .infer_shape(infer_shape)
            .infer_type(float_type)
            .expensive()
            .gradient(Gradient::declared(back, move |_, _, _| {
                let n = if modulated { 4 } else { 3 };
                std::iter::once(Dep::OutGrad(0)).chain((0..n).map(Dep::Input)).collect()
            }))
            .kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => forward::<T>(c))))
    };
    let backward = |def: OpDef| {
        def.kernel(widening::cpu(|c| with_real!(c.inputs[0].dtype(), T => backward::<T>(c))))
    };
    let (plain, modulated) =
        ("_backward_DeformableConvolution", "_backward_ModulatedDeformableConvolution");
    vec![
        define(OpDef::new::<DeformableParam>("_contrib_DeformableConvolution"), false, plain)
            .doc(PLAIN),
        backward(OpDef::new::<DeformableParam>(plain)),
        define(
            OpDef::new::<ModulatedParam>("_contrib_ModulatedDeformableConvolution"),
            true,
            modulated,
        )
        .doc(MODULATED),
        backward(OpDef::new::<ModulatedParam>(modulated)),
    ]
}

/// The parameters of either operator.
pub struct Common {
    pub kernel: Tuple,
    pub stride: Tuple,
    pub dilate: Tuple,
    pub pad: Tuple,
    pub filters: i64,
    pub groups: i64,
    pub offset_groups: i64,
    pub no_bias: bool,
    pub modulated: bool,
}

pub fn param(attrs: &Attrs) -> Common {
    match attrs.typed().downcast_ref::<ModulatedParam>() {
        Some(p) => p.into(),
        None => attrs.get::<DeformableParam>().into(),
    }
}

impl Common {
    /// Checks the parameters and fills in defaults.
    pub fn complete(mut self) -> Result<Self> {
        if self.kernel.len() != 2 {
            return Err(Error::argument("kernel", "length", self.kernel.len(), 2));
        }
        if self.filters % self.groups != 0 {
            let expected = format!("a multiple of num_group {}", self.groups);
            return Err(Error::argument("num_filter", "value", self.filters, expected));
        }
        self.kernel = spatial(&self.kernel, "kernel", 2, 1, 1)?;
        self.stride = spatial(&self.stride, "stride", 2, 1, 1)?;
        self.dilate = spatial(&self.dilate, "dilate", 2, 1, 1)?;
        self.pad = spatial(&self.pad, "pad", 2, 0, 0)?;
        Ok(self)
    }

    pub fn taps(&self) -> i64 {
        self.kernel[0].saturating_mul(self.kernel[1])
    }
}

fn infer_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = param(attrs).complete()?;
    assign_shape(&mut inputs[0], "data", &Shape::of_rank(4))?;
    assign_shape(&mut outputs[0], "output", &Shape::new(&[-1, p.filters, -1, -1]))?;
    let known = outputs[0].dims()[0];
    assign_shape(&mut inputs[0], "data", &Shape::new(&[known, -1, -1, -1]))?;
    let d = inputs[0].dims().to_vec();
    for (groups, name) in [(p.groups, "num_group"), (p.offset_groups, "num_deformable_group")] {
        if d[1] >= 0 && d[1] % groups != 0 {
            let expected = format!("a number of channels divisible by {name} {groups}");
            return Err(Error::argument("data", "shape", &inputs[0], expected));
        }
    }
    let extent = |i: usize| {
        let room = d[i + 2] + 2 * p.pad[i] - p.dilate[i] * (p.kernel[i] - 1) - 1;
        match d[i + 2] {
            -1 => Ok(-1),
            0 => {
                Err(Error::argument("data", "shape", &inputs[0], "height and width of at least 1"))
            }
            _ if room < 0 => {
                Err(Error::argument("data", "shape", &inputs[0], "room for one filter"))
            }
            _ => Ok(room / p.stride[i] + 1),
        }
    };
    let (h, w) = (extent(0)?, extent(1)?);
    assign_shape(&mut outputs[0], "output", &Shape::new(&[d[0], p.filters, h, w]))?;
    let per = if d[1] < 0 { -1 } else { d[1] / p.groups };
    let maps = p.taps().saturating_mul(p.offset_groups);
    for (slot, name) in inputs.iter_mut().zip(names(p.modulated, p.no_bias)).skip(1) {
        let shape = match name.as_str() {
            "offset" => Shape::new(&[d[0], maps.saturating_mul(2), h, w]),
            "mask" => Shape::new(&[d[0], maps, h, w]),
            "weight" => Shape::new(&[p.filters, per, p.kernel[0], p.kernel[1]]),
            _ => Shape::flat(p.filters as usize),
        };
        assign_shape(slot, &name, &shape)?;
    }
    complete(inputs, outputs)
}

/// The matrices of one group of filters: filters by elements, and elements by positions.
fn filters<T>(
    plan: &Sampling,
    group: usize,
    weight: *mut T,
    columns: *mut T,
) -> (usize, usize, Mat<T>, Mat<T>) {
    let groups = plan.p.groups as usize;
    let (m, k) = (plan.p.filters as usize / groups, plan.rows() / groups);
    // SAFETY: both hold the matrices of all groups.
    let (w, c) = unsafe { (weight.add(group * m * k), columns.add(group * k * plan.positions())) };
    (m, k, Mat::rows(w, k), Mat::rows(c, plan.positions()))
}

fn forward<T: Real>(call: &Call<'_>) -> Result<()> {
    if call.req[0] == OpReq::Null {
        return Ok(());
    }
    let plan = Sampling::new(call.attrs, &call.inputs[0], &call.outputs[0])?;
    let shift = usize::from(plan.p.modulated);
    // SAFETY: inputs are not written meanwhile; the output is ours and overlaps none of them.
    let (input, out) = unsafe {
        let all: Vec<&[T]> = call.inputs.iter().map(|v| v.slice::<T>()).collect();
        (all, call.outputs[0].slice_mut::<T>())
    };
    let (x, offset, n) = (input[0], input[1], plan.positions());
    let mask = plan.p.modulated.then(|| input[2]);
    let per_image = plan.p.filters as usize * n;
    with_scratch::<T, _>(plan.rows() * n, |columns| {
        for image in 0..plan.images {
            let part = |all, size| part_of(all, image, size);
            let mask = mask.map(|m| part(m, plan.offsets() / 2));
            gather(
                &plan,
                part(x, plan.channels * plan.plane()),
                part(offset, plan.offsets()),
                mask,
                columns,
            );
            let y = &mut out[image * per_image..(image + 1) * per_image];
            if let Some(bias) = input.get(3 + shift) {
                for (row, &b) in y.chunks_exact_mut(n).zip(*bias) {
                    row.fill(b);
                }
            }
            for g in 0..plan.p.groups as usize {
                let weight = call.inputs[2 + shift].as_ptr::<T>();
                let (m, k, w, c) = filters(&plan, g, weight, columns.as_mut_ptr());
                let to = Mat::rows(y[g * m * n..].as_mut_ptr(), n);
                // SAFETY: the extents are those of the views; the output overlaps nothing.
                unsafe { gemm((m, n, k), w, c, to, !plan.p.no_bias, Threads::Pool) };
            }
        }
    });
    Ok(())
}

/// The part of one image in an array of all.
fn part_of<T>(all: &[T], image: usize, size: usize) -> &[T] {
    &all[image * size..(image + 1) * size]
}

fn backward<T: Real>(call: &Call<'_>) -> Result<()> {
    let plan = Sampling::new(call.attrs, &call.inputs[1], &call.inputs[0])?;
    let shift = usize::from(plan.p.modulated);
    // SAFETY: inputs are not written meanwhile.
    let input: Vec<&[T]> = call.inputs.iter().map(|v| unsafe { v.slice::<T>() }).collect();
    let (dy, x, offset) = (input[0], input[1], input[2]);
    let mask = plan.p.modulated.then(|| input[3]);
    let wanted = |i: usize| {
        let on = i < call.outputs.len() && call.req[i] != OpReq::Null;
        // SAFETY: outputs are ours to write, overlap no input, and each is asked for once.
        on.then(|| unsafe { call.outputs[i].slice_mut::<T>() })
    };
    let (mut dx, mut doffset) = (wanted(0), wanted(1));
    let mut dmask = if plan.p.modulated { wanted(2) } else { None };
    let (mut dweight, dbias) = (wanted(2 + shift), wanted(3 + shift));
    for d in [&mut dx, &mut dweight].into_iter().flatten() {
        d.fill(T::zero());
    }
    let (n, per_image) = (plan.positions(), plan.p.filters as usize * plan.positions());
    if let Some(d) = dbias {
        d.fill(T::zero());
        for (row, grads) in dy.chunks_exact(n).enumerate() {
            d[row % plan.p.filters as usize] += grads.iter().copied().sum::<T>();
        }
    }
    let sizes = [plan.channels * plan.plane(), plan.offsets(), plan.offsets() / 2];
    with_scratch::<T, _>(plan.rows() * n, |columns| {
        for image in 0..plan.images {
            let part = |all, size| part_of(all, image, size);
            let own = (part(x, sizes[0]), part(offset, sizes[1]), mask.map(|m| part(m, sizes[2])));
            let weight = call.inputs[3 + shift].as_ptr::<T>();
            let products = |columns: &mut [T], into: Option<*mut T>| {
                for g in 0..plan.p.groups as usize {
                    let filter = into.unwrap_or(weight);
                    let (m, k, w, c) = filters(&plan, g, filter, columns.as_mut_ptr());
                    let grads =
                        Mat::rows(dy[image * per_image + g * m * n..].as_ptr().cast_mut(), n);
                    // SAFETY: the extents are those of the views; what is written overlaps nothing.
                    unsafe {
                        match into {
                            Some(_) => gemm((m, k, n), grads, c.t(), w, true, Threads::Pool),
                            None => gemm((k, n, m), w.t(), grads, c, false, Threads::Pool),
                        }
                    }
                }
            };
            if let Some(d) = dweight.as_deref_mut() {
                gather(&plan, own.0, own.1, own.2, columns);
                products(columns, Some(d.as_mut_ptr()));
            }
            if dx.is_some() || doffset.is_some() || dmask.is_some() {
                products(columns, None);
                let of = |d: &mut Option<&mut [T]>, size: usize| {
                    // SAFETY: the part of one image, which nothing else refers to meanwhile.
                    d.as_deref_mut().map(|d| unsafe {
                        std::slice::from_raw_parts_mut(d.as_mut_ptr().add(image * size), size)
                    })
                };
                let to =
                    [of(&mut dx, sizes[0]), of(&mut doffset, sizes[1]), of(&mut dmask, sizes[2])];
                scatter(&plan, own, columns, to);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::*;

    #[test]
    fn gradients_match_differences() {
        let x = Tensor::noise(&[2, 4, 4, 5], 1);
        let (offset, mask) = (Tensor::noise(&[2, 16, 2, 3], 2), Tensor::noise(&[2, 8, 2, 3], 3));
        let (w, b) = (Tensor::noise(&[2, 2, 2, 2], 4), Tensor::noise(&[2], 5));
        let p = [
            ("kernel", "(2, 2)"),
            ("num_filter", "2"),
            ("num_group", "2"),
            ("num_deformable_group", "2"),
            ("stride", "(2, 2)"),
            ("pad", "(0, 1)"),
        ];
        let plain = [x.clone(), offset.clone(), w.clone(), b.clone()];
        check_gradient("_contrib_DeformableConvolution", &p, &plain, &[0, 1, 2, 3], true);
        let all = [x, offset, mask, w, b];
        check_gradient("_contrib_ModulatedDeformableConvolution", &p, &all, &[0, 1, 2, 3, 4], true);
    }
}
