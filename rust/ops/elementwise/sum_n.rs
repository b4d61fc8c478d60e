//! Operators on whole arrays that change no element but by a plain rule: sums of many arrays,
//! copies, conversions, limits.

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::kernels::arith::Arith;
use crate::kernels::copy::fill;
use crate::kernels::map::map;
use crate::kernels::reduce::add_arrays;
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape, same_type};
use crate::operator::{Attrs, Call, Gradient, InplacePair, Kernel, OpDef, OpReq};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype};

params! {
    /// Parameters of operators with any number of inputs.
    pub struct CountParam {
        num_args: i32, required.ge(1.0), "Number of inputs.";
    }
}

params! {
    /// Parameters of `Cast`.
    pub struct CastParam {
        dtype: DType, required, "The dtype of the output.";
    }
}

params! {
    /// Parameters of `clip`.
    pub struct ClipParam {
        a_min: f32, required, "Least value.";
        a_max: f32, required, "Greatest value.";
    }
}

params! {
    /// Parameters of `amp_multicast`.
    pub struct MulticastParam {
        num_outputs: i32, required.ge(1.0).le(65535.0), "Number of arrays.";
        cast_narrow: bool, default(false), "Cast to the narrowest dtype? Else to the widest.";
    }
}

fn wanted(call: &Call<'_>, f: impl Fn(&Call<'_>) -> Result<()>) -> Result<()> {
    if call.req[0] == OpReq::Null { Ok(()) } else { f(call) }
}

fn kernel(f: fn(&Call<'_>) -> Result<()>) -> Kernel {
    Kernel::cpu(move |call| wanted(call, f)).skips_null()
}

/// `to = from`, converting the dtype; as a kernel's body.
pub fn copy(from: &View, to: &View) -> Result<()> {
    crate::kernels::copy::copy(from, to);
    Ok(())
}

fn sum_n(call: &Call<'_>) -> Result<()> {
    let out = &call.outputs[0];
    with_dtype!(out.dtype(), T => {
        let inputs: Vec<_> = call.inputs.iter().map(|v| v.as_ptr::<T>().cast_const()).collect();
        // SAFETY: all views have the output's size; the output is one of them or apart.
        unsafe { add_arrays(&inputs, out.as_ptr::<T>(), out.size()) };
    });
    Ok(())
}

fn clip(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<ClipParam>();
    let (x, out) = (&call.inputs[0], &call.outputs[0]);
    with_dtype!(out.dtype(), T => {
        let (low, high) = (T::saturating(p.a_min.into()), T::saturating(p.a_max.into()));
        // SAFETY: views of equal size.
        unsafe {
            map([x.as_ptr::<T>().cast_const()], out.as_ptr::<T>(), out.size(), move |[x]: [T; 1]| {
                if x > high { high } else if x < low { low } else { x }
            })
        }
    });
    Ok(())
}

params! {
    /// Parameters of `_no_gradient`.
    pub struct NoGradientParam {
        of: String, required, "The operator without a gradient.";
        node: String, required, "The name of its node.";
        why: String, required, "The text of the error.";
    }
}

fn clip_backward(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<ClipParam>();
    let (g, x, out) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    with_dtype!(out.dtype(), T => {
        let (low, high) = (T::saturating(p.a_min.into()), T::saturating(p.a_max.into()));
        let (g, x) = (g.as_ptr::<T>().cast_const(), x.as_ptr::<T>().cast_const());
        // SAFETY: views of equal size.
        unsafe {
            map([g, x], out.as_ptr::<T>(), out.size(), move |[g, x]: [T; 2]| {
                if x < low || x > high { T::zero() } else { g }
            })
        }
    });
    Ok(())
}

/// Passes the gradient on unchanged.
fn pass() -> Gradient {
    Gradient::rule_reading(&[], |b, node| Ok(vec![Some(node.out_grad(b, 0)?)]))
}

fn same(name: &str) -> OpDef {
    OpDef::plain(name).infer_shape(elementwise_shape).infer_type(same_type)
}

pub fn operators() -> Vec<OpDef> {
    let add_n = OpDef::new::<CountParam>("add_n")
        .aliases(&["ElementWiseSum", "_sparse_ElementWiseSum", "_sparse_add_n"])
        .doc(
            "Returns the sum of all inputs, element by element.\n\nAll inputs and the output have \
             one shape and one dtype; otherwise it is an error. At least one input is needed.\n\n\
             Examples\n--------\n>>> nd.add_n(nd.ones((2,)), nd.ones((2,)), nd.ones((2,)))\n[3. \
             3.]\n",
        )
        .variadic("num_args", "Arrays to add.")
        .infer_shape(elementwise_shape)
        .infer_type(same_type)
        .pointwise()
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::rule_reading(&[], |b, node| {
            let g = node.out_grad(b, 0)?;
            Ok(vec![Some(g); node.inputs.len()])
        }))
        .kernel(kernel(sum_n));
    let copies = [
        (
            "_copy",
            &["identity", "_copyto", "_npi_copyto"][..],
            "Returns a copy of the input.",
            "nd._internal._copy(nd.ones((2,)))\n[1. 1.]",
        ),
        (
            "_CrossDeviceCopy",
            &[][..],
            "Returns the input, copied to the device of the output.",
            "sym._internal._CrossDeviceCopy(sym.Variable('x')).list_arguments()\n['x']",
        ),
    ]
    .map(|(name, aliases, what, example)| {
        same(name)
            .aliases(aliases)
            .doc(&format!(
                "{what}\n\nShape and dtype are those of the input; the gradient passes \
                 unchanged.\n\nExamples\n--------\n>>> {example}\n"
            ))
            .inputs_are(&[("data", "The input array.")])
            .pointwise()
            .inplace(&[InplacePair::identity(0, 0)])
            .gradient(pass())
            .kernel(kernel(|call| copy(&call.inputs[0], &call.outputs[0])))
    });
    let like_rhs = same("_identity_with_attr_like_rhs")
        .doc(
            "Returns lhs; shape and dtype are learnt from rhs, whose values are not read.\n\n\
             Examples\n--------\n>>> nd._internal._identity_with_attr_like_rhs(nd.ones((2,)), \
             nd.zeros((2,)))\n[1. 1.]\n",
        )
        .inputs_are(&[("lhs", "The array."), ("rhs", "Gives shape and dtype.")])
        .ignores(&[1])
        .inplace(&[InplacePair::identity(0, 0)])
        .gradient(Gradient::rule_reading(&[], |b, node| Ok(vec![Some(node.out_grad(b, 0)?), None])))
        .kernel(kernel(|call| copy(&call.inputs[0], &call.outputs[0])));
    let clip = OpDef::new::<ClipParam>("clip")
        .aliases(&["_npi_clip", "_sparse_clip"])
        .doc(
            "Returns, element by element: a_max where x > a_max, else a_min where x < a_min, else \
             x.\n\nShape and dtype are those of the input; the limits are converted to that dtype, \
             to its least or greatest value where they are beyond. NaN stays NaN. The gradient is \
             1 inside of and at the limits, 0 outside.\n\nExamples\n--------\n>>> \
             nd.clip(nd.array([-2, 0.5, 3]), a_min=-1, a_max=1)\n[-1.   0.5  1. ]\n",
        )
        .inputs_are(&[("data", "The input array.")])
        .elementwise()
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::use_in("_backward_clip"))
        .kernel(kernel(self::clip));
    let clip_back = OpDef::new::<ClipParam>("_backward_clip")
        .pointwise()
        .inputs_are(&[("ograd", "Output gradient."), ("data", "The input array.")])
        .inplace(&[InplacePair::new(0, 0)])
        .kernel(kernel(clip_backward));
    let mut all = vec![add_n, like_rhs, clip, clip_back, no_gradient()];
    all.extend(copies);
    all.extend(casts());
    all.extend(multicast());
    all
}

/// Stands for a gradient that does not exist, so that a graph of which it is a part can be bound.
fn no_gradient() -> OpDef {
    OpDef::new::<NoGradientParam>("_no_gradient")
        .doc(
            "Raises the error that an operator has no gradient, when it runs.\n\nShape and dtype \
             are those of the input.\n\nExamples\n--------\n>>> \
             sym._internal._no_gradient(sym.Variable('x'), of='_backward_exp', node='y', \
             why='no').list_arguments()\n['x']\n",
        )
        .inputs_are(&[("data", "Gives shape and dtype.")])
        .infer_shape(elementwise_shape)
        .infer_type(same_type)
        .ignores(&[0])
        .gradient(Gradient::Zero)
        .kernel(kernel(|call| {
            let p = call.attrs.get::<NoGradientParam>();
            Err(Error::not_implemented(p.why.as_str()).at_node(&p.of, &p.node))
        }))
}

/// `Cast`, and the one that mixed precision inserts.
fn casts() -> Vec<OpDef> {
    let cast = |name: &str, back: &str| {
        OpDef::new::<CastParam>(name)
            .doc(
                "Returns the input converted to another dtype.\n\nFloats become integers by \
                 truncation, integers wrap, anything but 0 becomes True. The gradient is converted \
                 back.\n\nExamples\n--------\n>>> nd.Cast(nd.array([1.7, -1.7]), dtype='int32')\n[ \
                 1 -1]\n",
            )
            .inputs_are(&[("data", "The input array.")])
            .pointwise()
            .infer_shape(elementwise_shape)
            .infer_type(|attrs, inputs, outputs| {
                assign_type(&mut outputs[0], "output", attrs.get::<CastParam>().dtype)?;
                Ok(inputs[0].is_some())
            })
            .gradient(Gradient::use_none(back))
            .kernel(kernel(|call| copy(&call.inputs[0], &call.outputs[0])))
    };
    let back = |name: &str| {
        OpDef::new::<CastParam>(name)
            .inputs_are(&[("ograd", "Output gradient.")])
            .pointwise()
            .kernel(kernel(|call| copy(&call.inputs[0], &call.outputs[0])))
    };
    let filled = [
        ("zeros_like", 0.0, "0", "_sparse_zeros_like"),
        ("ones_like", 1.0, "1", "_sparse_ones_like"),
    ]
    .map(|(name, value, text, alias)| {
        same(name)
            .aliases(&[alias])
            .doc(&format!(
                "Returns an array of {text} with shape and dtype of the input.\n\nThe gradient is \
                 0.\n\nExamples\n--------\n>>> nd.{name}(nd.array([5, 7]))\n[{text} {text}]\n"
            ))
            .inputs_are(&[("data", "Gives shape and dtype.")])
            .ignores(&[0])
            .inplace(&[InplacePair::new(0, 0)])
            .gradient(Gradient::Zero)
            .kernel(
                Kernel::cpu(move |call| {
                    wanted(call, |call| {
                        fill(&call.outputs[0], value);
                        Ok(())
                    })
                })
                .skips_null(),
            )
    });
    let mut all = vec![
        cast("Cast", "_backward_cast").aliases(&["cast", "_npi_cast", "_npx_cast"]),
        float_cast(cast("amp_cast", "_backward_amp_cast")),
        back("_backward_cast"),
        back("_backward_amp_cast"),
    ];
    all.extend(filled);
    all
}

/// `amp_cast`: a cast that leaves what is not a float as it is.
fn float_cast(cast: OpDef) -> OpDef {
    cast.doc(
        "Returns a float array converted to another float dtype, any other array as it \
         is.\n\nConversions for mixed precision are such nodes. The gradient is converted \
         back.\n\nExamples\n--------\n>>> nd.amp_cast(nd.array([1, 2], dtype='int32'), \
         dtype='float16')\n[1 2]\n",
    )
    .infer_type(|attrs, inputs, outputs| {
        let Some(given) = inputs[0] else { return Ok(false) };
        let wanted = attrs.get::<CastParam>().dtype;
        assign_type(&mut outputs[0], "output", if given.is_float() { wanted } else { given })?;
        Ok(true)
    })
}

/// `amp_multicast`: arrays brought to one float dtype.
fn multicast() -> [OpDef; 2] {
    let count = |attrs: &Attrs| attrs.get::<MulticastParam>().num_outputs as usize;
    let names = move |attrs: &Attrs| (0..count(attrs)).map(|i| format!("data_{i}")).collect();
    let each = |call: &Call<'_>| {
        for ((from, to), req) in call.inputs.iter().zip(call.outputs).zip(call.req) {
            if *req != OpReq::Null {
                copy(from, to)?;
            }
        }
        Ok(())
    };
    let forward = OpDef::new::<MulticastParam>("amp_multicast")
        .doc(
            "Converts arrays to the widest of their dtypes, with ``cast_narrow`` to the \
             narrowest.\n\nAny shapes; each output has its input's. float16, float32 and float64. \
             The gradients are converted back.\n\nExamples\n--------\n>>> x, y = \
             nd.amp_multicast(nd.ones((1,)), nd.ones((2,), dtype='float16'), num_outputs=2)\n>>> \
             y.dtype.__name__\n'float32'\n",
        )
        .many_inputs("The arrays.", names)
        .numbered_outputs(count)
        .infer_shape(|_, inputs, outputs| {
            for (i, (from, to)) in inputs.iter_mut().zip(outputs.iter_mut()).enumerate() {
                assign_shape(from, &format!("data_{i}"), to)?;
                *to = from.clone();
            }
            Ok(inputs.iter().all(Shape::is_known))
        })
        .infer_type(|attrs, inputs, outputs| {
            for (i, slot) in inputs.iter().enumerate() {
                if let Some(t) = slot.filter(|t| !t.is_float()) {
                    let floats = "float16, float32 or float64";
                    return Err(Error::argument(&format!("data_{i}"), "dtype", t, floats));
                }
            }
            let Some(known) = inputs.iter().copied().collect::<Option<Vec<DType>>>() else {
                return Ok(false);
            };
            let by_size = known.iter().copied();
            let chosen = match attrs.get::<MulticastParam>().cast_narrow {
                true => by_size.min_by_key(|t| t.size()),
                false => by_size.max_by_key(|t| t.size()),
            };
            let chosen = chosen.unwrap_or(DType::F32);
            outputs.iter_mut().try_for_each(|slot| assign_type(slot, "output", chosen))?;
            Ok(true)
        })
        .gradient(Gradient::use_none("_backward_amp_multicast"))
        .kernel(Kernel::cpu(each).skips_null());
    let backward = OpDef::new::<MulticastParam>("_backward_amp_multicast")
        .many_inputs("Output gradients.", names)
        .kernel(Kernel::cpu(each).skips_null());
    [forward, backward]
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Tensor, check_gradient, values};

    #[test]
    fn gradients_match_numeric_differentiation() {
        let x = Tensor::of(&[4], &[-1.7, -0.4, 0.3, 2.0]);
        check_gradient("clip", &[("a_min", "-1"), ("a_max", "1")], &[x.clone()], &[0], true);
        check_gradient("_copy", &[], &[x.clone()], &[0], true);
        check_gradient("add_n", &[("num_args", "3")], &[x.clone(), x.clone(), x], &[0, 1, 2], true);
    }

    #[test]
    fn clip_keeps_limits_and_cast_truncates() {
        let x = Tensor::of(&[4], &[-1.7, -1.0, 300.0, f64::NAN]);
        let got = values("clip", &[("a_min", "-1"), ("a_max", "1")], &[x.clone()]);
        assert_eq!(got[..3], [-1.0, -1.0, 1.0]);
        assert!(got[3].is_nan());
        let got = values("Cast", &[("dtype", "uint8")], &[x]);
        assert_eq!(got[..3], [255.0, 255.0, 44.0]);
    }
}
