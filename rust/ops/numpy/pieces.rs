//! Smaller operators: windows, evenly spaced powers, indices, traces, masks, checks.

use super::statistics::{numbers, store};
use super::{in_scratch, kernel, only, room, shaped_by, text};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::copy::{copy, fill};
use crate::kernels::layout::copy_strided;
use crate::kernels::reduce::{Reduction, reduce};
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, Gradient, OpDef, OpReq, Registry, Tuple};
use crate::ops::tensor::movement::diagonal::diagonal;
use crate::ops::tensor::moves::{Path, along};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype};
use std::f64::consts::TAU;

params! {
    /// Parameters of the windows.
    #[allow(non_snake_case)] // the operator's parameter is called so
    pub struct WindowParam {
        M: Option<i64>, default(None), "Number of elements, which must be given.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

params! {
    /// Parameters of `_npi_logspace`.
    pub struct LogspaceParam {
        start: f64, required, "The first exponent.";
        stop: f64, required, "The last exponent.";
        num: i32, required.ge(0.0), "Number of elements.";
        endpoint: bool, default(true), "Is stop the last one? Else it would be the next.";
        base: f64, default(10.0), "The base.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
        dtype: DType, default(DType::F32), "The dtype.";
    }
}

params! {
    /// Parameters of `_npi_indices`.
    pub struct IndicesParam {
        dimensions: Tuple, required, "The extents.";
        dtype: DType, default(DType::I32), "The dtype.";
        ctx: String, default(String::new()), "The device, such as cpu(0).";
    }
}

params! {
    /// Parameters of `_np_trace`.
    pub struct TraceParam {
        offset: i32, default(0), "Which diagonal: positive above the main one, negative below.";
        axis1: i32, default(0), "First axis of the matrices.";
        axis2: i32, default(1), "Second axis of the matrices.";
    }
}

params! {
    /// Parameters of `_npi_boolean_mask_assign_scalar`.
    pub struct MaskNumberParam {
        value: f32, required, "The new value.";
        start_axis: i32, required.ge(0.0), "The axis of the data that goes with the mask's first.";
    }
}

params! {
    /// Parameters of `_npi_boolean_mask_assign_tensor`.
    pub struct MaskParam {
        start_axis: i32, required.ge(0.0), "The axis of the data that goes with the mask's first.";
    }
}

params! {
    /// Parameters of `_npx_constraint_check`.
    pub struct CheckParam {
        msg: String, default("Constraint violated.".to_owned()), "What the error says.";
    }
}

type WindowFn = fn(f64) -> f64;

/// A window's value at an angle from 0 to 2 pi.
fn windows() -> [OpDef; 3] {
    let rows: [(&str, &str, &str, WindowFn); 3] = [
        ("blackman", "0.42 - 0.5 cos(x) + 0.08 cos(2 x)", "[0. 1. 0.]", |x| {
            (0.42 - 0.5 * x.cos() + 0.08 * (2.0 * x).cos()).max(0.0)
        }),
        ("hamming", "0.54 - 0.46 cos(x)", "[0.08 1.   0.08]", |x| 0.54 - 0.46 * x.cos()),
        ("hanning", "0.5 - 0.5 cos(x)", "[0. 1. 0.]", |x| 0.5 - 0.5 * x.cos()),
    ];
    rows.map(|(name, formula, shown, value)| {
        OpDef::new::<WindowParam>(&format!("_npi_{name}"))
            .inputs_are(&[])
            .doc(&text(
                &format!("The {name} window: {formula} for M angles x from 0 to 2 pi."),
                "One element is 1; less than one is none.",
                &format!("_npi_{name}(M=3)\n{shown}"),
            ))
            .infer_shape(|attrs, _, outputs| {
                let Some(count) = attrs.get::<WindowParam>().M else {
                    return Err(Error::invalid("M", "None", "an integer"));
                };
                assign_shape(&mut outputs[0], "output", &Shape::from([count.max(0)]))?;
                Ok(true)
            })
            .infer_type(|attrs, _, outputs| {
                assign_type(&mut outputs[0], "output", attrs.get::<WindowParam>().dtype)?;
                Ok(true)
            })
            .gradient(Gradient::Zero)
            .kernel(kernel(move |call| {
                let n = call.outputs[0].size();
                let one = |i: usize| match n {
                    1 => 1.0,
                    _ => value(TAU * i as f64 / (n - 1) as f64),
                };
                store(call, 0, &(0..n).map(one).collect::<Vec<f64>>());
                Ok(())
            }))
    })
}

fn logspace() -> OpDef {
    OpDef::new::<LogspaceParam>("_npi_logspace")
        .inputs_are(&[])
        .doc(&text(
            "Powers of a base with evenly spaced exponents.",
            "Without ``endpoint`` the exponents end before ``stop``.",
            "_npi_logspace(start=0, stop=2, num=3)\n[  1.  10. 100.]",
        ))
        .infer_shape(|attrs, _, outputs| {
            let count = attrs.get::<LogspaceParam>().num;
            assign_shape(&mut outputs[0], "output", &Shape::from([i64::from(count)]))?;
            Ok(true)
        })
        .infer_type(|attrs, _, outputs| {
            assign_type(&mut outputs[0], "output", attrs.get::<LogspaceParam>().dtype)?;
            Ok(true)
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let p = call.attrs.get::<LogspaceParam>();
            let gaps = f64::from(p.num - i32::from(p.endpoint)).max(1.0);
            let one = |i: i32| p.base.powf(p.start + (p.stop - p.start) * f64::from(i) / gaps);
            store(call, 0, &(0..p.num).map(one).collect::<Vec<f64>>());
            Ok(())
        }))
}

fn indices() -> OpDef {
    OpDef::new::<IndicesParam>("_npi_indices")
        .inputs_are(&[])
        .doc(&text(
            "For each axis the indices along it of all elements of a shape.",
            "The output has the number of axes as its first extent, then the shape.",
            "_npi_indices(dimensions=(2, 2))[0]\n[[0 0]\n [1 1]]",
        ))
        .infer_shape(|attrs, _, outputs| {
            let dims = &attrs.get::<IndicesParam>().dimensions;
            if let Some(extent) = dims.iter().find(|extent| **extent < 0) {
                return Err(Error::invalid("extent in dimensions", extent, "at least 0"));
            }
            let count = dims.len() as i64;
            let shape: Shape = std::iter::once(count).chain(dims.iter().copied()).collect();
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(true)
        })
        .infer_type(|attrs, _, outputs| {
            assign_type(&mut outputs[0], "output", attrs.get::<IndicesParam>().dtype)?;
            Ok(true)
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let dims = &call.attrs.get::<IndicesParam>().dimensions;
            if call.outputs[0].size() == 0 {
                return Ok(());
            }
            let size = dims.iter().product::<i64>();
            let mut all = room(call.outputs[0].size())?;
            for axis in 0..dims.len() {
                let step: i64 = dims[axis + 1..].iter().product();
                all.extend((0..size).map(|i| (i / step % dims[axis]) as f64));
            }
            store(call, 0, &all);
            Ok(())
        }))
}

fn diagonal_indices() -> OpDef {
    let def = OpDef::plain("_npi_diag_indices_from")
        .inputs_are(&[("data", "Gives the shape.")])
        .ignores(&[0])
        .doc(&text(
            "The indices of the main diagonal of an array whose extents are equal.",
            "``(d, n)`` int64 for ``d >= 2`` axes of extent ``n``.",
            "_npi_diag_indices_from(nd.zeros((2, 2)))\n[[0 1]\n [0 1]]",
        ))
        .infer_type(|_, inputs, outputs| {
            assign_type(&mut outputs[0], "output", DType::I64)?;
            Ok(inputs[0].is_some())
        })
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let n = call.outputs[0].dims()[1] as usize;
            let one = |i: usize| (i % n) as f64;
            store(call, 0, &(0..call.outputs[0].size()).map(one).collect::<Vec<f64>>());
            Ok(())
        }));
    shaped_by(def, |_, from| {
        let mut known = from.dims().iter().filter(|d| **d >= 0);
        let n = known.next().copied().unwrap_or(-1);
        match from.ndim() >= 2 && known.all(|d| *d == n) {
            true => Ok(Shape::from([from.ndim() as i64, n])),
            false => Err(Error::argument("data", "shape", from, "at least two axes of one extent")),
        }
    })
}

fn trace_path(attrs: &Attrs, of: &Shape) -> Result<Path> {
    let p = attrs.get::<TraceParam>();
    if of.ndim() < 2 {
        return Err(Error::argument("data", "shape", of, "at least two axes"));
    }
    diagonal(of, p.offset.into(), p.axis1.into(), p.axis2.into())
}

fn trace() -> [OpDef; 2] {
    let def =
        OpDef::new::<TraceParam>("_np_trace").inputs_are(&[("data", "The array.")]).doc(&text(
            "The sums of the diagonals of the matrices in two axes.",
            "The other axes stay. Any dtype but bool.",
            "_np_trace(nd.array([[1, 2], [3, 4]])).asscalar().item()\n5.0",
        ));
    let def = def
        .infer_shape(|attrs, inputs, outputs| {
            if !inputs[0].is_known() {
                return Ok(false);
            }
            let mut shape = Shape::from(&trace_path(attrs, &inputs[0])?.out[..]);
            shape.dims_mut().pop();
            assign_shape(&mut outputs[0], "output", &shape)?;
            Ok(true)
        })
        .infer_type(same_type)
        .gradient(Gradient::use_none("_backward_np_trace"))
        .kernel(kernel(|call| {
            let (x, out) = (&call.inputs[0], &call.outputs[0]);
            let path = trace_path(call.attrs, x.shape())?;
            let shape = Shape::from(&path.dims[..]);
            let flags: Vec<bool> = (0..shape.ndim()).map(|i| i + 1 == shape.ndim()).collect();
            let room = View::absent(shape, x.dtype());
            in_scratch(&room, x.dtype(), |flat| {
                if flat.size() > 0 {
                    // SAFETY: the diagonals lie in the input, and the scratch is apart.
                    unsafe { copy_strided(&along(&path, x), flat) };
                }
                reduce(Reduction::Sum, flat, &flags, out);
            });
            Ok(())
        }));
    let back = OpDef::new::<TraceParam>("_backward_np_trace").kernel(kernel(|call| {
        let (g, to) = (&call.inputs[0], &call.outputs[0]);
        let path = trace_path(call.attrs, to.shape())?;
        fill(to, 0.0);
        let target = along(&path, to);
        let mut strides = g.shape().strides();
        strides.push(0);
        if target.size() > 0 {
            // SAFETY: the gradient repeats along the diagonals, which lie in the output.
            unsafe {
                let g = View::with_strides(g.ptr(), target.shape().clone(), strides, g.dtype());
                copy_strided(&g, &target);
            }
        }
        Ok(())
    }));
    [only(def, |dtype| dtype != DType::Bool, "a number, not bool"), back]
}

/// The elements under a mask: their numbers, in rows of `inner` that follow one another.
struct Masked {
    starts: Vec<usize>,
    inner: usize,
    outer: usize,
}

fn masked(data: &View, mask: &View, start: i32) -> Result<Masked> {
    let (start, dims) = (start as usize, data.shape());
    let (outer, end) = (dims.product(0..start), start + mask.ndim());
    let (inner, size) = (dims.product(end..dims.ndim()), mask.size());
    let flags = numbers(mask)?;
    let on: Vec<usize> = (0..size).filter(|i| flags[*i] != 0.0).collect();
    let starts = (0..outer).flat_map(|o| on.iter().map(move |i| (o * size + i) * inner)).collect();
    Ok(Masked { starts, inner, outer })
}

fn mask_shape(start: i32, inputs: &[Shape], outputs: &mut [Shape]) -> Result<bool> {
    if !inputs.iter().all(Shape::is_known) {
        return Ok(false);
    }
    let (data, mask, start) = (&inputs[0], &inputs[1], start as usize);
    if data.dims().get(start..start + mask.ndim()) != Some(mask.dims()) {
        let expected = format!("that of the axes of {data} from axis {start} on");
        return Err(Error::argument("mask", "shape", mask, expected));
    }
    assign_shape(&mut outputs[0], "output", data)?;
    Ok(true)
}

/// The data and the output have one dtype; the mask has any, the value that of the data.
fn mask_types(
    _: &Attrs,
    inputs: &mut [Option<DType>],
    outputs: &mut [Option<DType>],
) -> Result<bool> {
    let Some(dtype) = inputs[0].or(outputs[0]) else { return Ok(false) };
    assign_type(&mut inputs[0], "data", dtype)?;
    assign_type(&mut outputs[0], "output", dtype)?;
    inputs[1].get_or_insert(DType::Bool);
    match inputs.get_mut(2) {
        Some(value) => assign_type(value, "value", dtype).map(|()| true),
        None => Ok(true),
    }
}

fn mask_assignments() -> [OpDef; 2] {
    let what = "The data with other values where a mask is not 0.";
    let notes =
        "The mask has the shape of the data's axes from ``start_axis`` on. Not differentiable.";
    let data = ("data", "The array.");
    let mask = ("mask", "Where it changes.");
    let number = OpDef::new::<MaskNumberParam>("_npi_boolean_mask_assign_scalar")
        .inputs_are(&[data, mask])
        .doc(&text(
            what,
            notes,
            "_npi_boolean_mask_assign_scalar(nd.array([1, 2]), nd.array([0, 1]), value=9, \
             start_axis=0)\n[1. 9.]",
        ))
        .infer_shape(|attrs, inputs, outputs| {
            mask_shape(attrs.get::<MaskNumberParam>().start_axis, inputs, outputs)
        })
        .infer_type(mask_types)
        .kernel(kernel(|call| {
            let (p, out) = (call.attrs.get::<MaskNumberParam>(), &call.outputs[0]);
            let found = masked(&call.inputs[0], &call.inputs[1], p.start_axis)?;
            copy(&call.inputs[0], out);
            with_dtype!(out.dtype(), T => {
                // SAFETY: the output is ours to write.
                let out = unsafe { out.slice_mut::<T>() };
                for start in found.starts {
                    out[start..start + found.inner].fill(T::from_f64(p.value.into()));
                }
            });
            Ok(())
        }));
    let array = OpDef::new::<MaskParam>("_npi_boolean_mask_assign_tensor")
        .inputs_are(&[data, mask, ("value", "One value, one row, or all new values.")])
        .doc(&text(
            what,
            &format!(
                "{notes} The value has one element, those of one row of what is changed, or \
                      all."
            ),
            "_npi_boolean_mask_assign_tensor(nd.array([1, 2, 3]), nd.array([0, 1, 1]), \
             nd.array([8, 9]), start_axis=0)\n[1. 8. 9.]",
        ))
        .infer_shape(|attrs, inputs, outputs| {
            let known = mask_shape(attrs.get::<MaskParam>().start_axis, &inputs[..2], outputs)?;
            Ok(known && inputs[2].is_known())
        })
        .infer_type(mask_types)
        .kernel(kernel(|call| {
            let (p, out) = (call.attrs.get::<MaskParam>(), &call.outputs[0]);
            let found = masked(&call.inputs[0], &call.inputs[1], p.start_axis)?;
            let (size, all) = (call.inputs[2].size(), found.starts.len() * found.inner);
            let repeated = found.outer > 0 && size > 0 && size == all / found.outer;
            if size != all && !repeated && size != 1 && size != found.inner {
                let expected = format!("{all}, {} or 1", found.inner);
                return Err(Error::argument("value", "number of elements", size, expected));
            }
            copy(&call.inputs[0], out);
            with_dtype!(out.dtype(), T => {
                // SAFETY: the output is ours to write; inputs are not written meanwhile.
                let (out, value) = unsafe { (out.slice_mut::<T>(), call.inputs[2].slice::<T>()) };
                for (row, start) in found.starts.iter().enumerate() {
                    for i in 0..found.inner {
                        out[start + i] = value[(row * found.inner + i) % size];
                    }
                }
            });
            Ok(())
        }));
    [number, array]
}

fn checks() -> [OpDef; 2] {
    let to_bool = |def: OpDef| {
        def.infer_shape(|_, inputs, outputs| {
            assign_shape(&mut outputs[0], "output", &Shape::new(&[]))?;
            Ok(inputs.iter().all(Shape::is_known))
        })
        .infer_type(|_, inputs, outputs| {
            assign_type(&mut outputs[0], "output", DType::Bool)?;
            Ok(inputs.iter().all(Option::is_some))
        })
        .gradient(Gradient::Zero)
    };
    let shared = OpDef::plain("_npi_share_memory")
        .inputs_are(&[("a", "The first array."), ("b", "The second.")])
        .doc(&text(
            "Whether two arrays have memory in common.",
            "Any shapes and dtypes; the output is bool of shape ``()``.",
            "_npi_share_memory(nd.ones((2,)), nd.ones((2,))).asscalar().item()\nFalse",
        ))
        .kernel(kernel(|call| {
            let shares = call.inputs[0].overlaps(&call.inputs[1]);
            store(call, 0, &[f64::from(u8::from(shares))]);
            Ok(())
        }));
    let constraint = OpDef::new::<CheckParam>("_npx_constraint_check")
        .inputs_are(&[("input", "The conditions.")])
        .not_deterministic()
        .doc(&text(
            "True if no element is 0, else an error.",
            "Any shape; bool. The error surfaces where results are waited for.",
            "_npx_constraint_check(nd.array([1, 1], dtype='bool')).asscalar().item()\nTrue",
        ))
        .kernel(crate::operator::Kernel::cpu(|call: &Call<'_>| {
            let conditions = numbers(&call.inputs[0])?;
            if conditions.contains(&0.0) {
                return Err(Error::value(&call.attrs.get::<CheckParam>().msg));
            }
            if call.req[0] != OpReq::Null {
                store(call, 0, &[1.0]);
            }
            Ok(())
        }));
    let constraint = only(to_bool(constraint), |dtype| dtype == DType::Bool, "bool");
    [to_bool(shared), constraint]
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let mut all: Vec<OpDef> = windows().into();
    all.extend([logspace(), indices(), diagonal_indices()]);
    all.extend(trace());
    all.extend(mask_assignments());
    all.extend(checks());
    all
}
