//! Operators on two arrays, or an array and a number. A row of the table defines the operator on
//! arrays of equal shape, the broadcasting one, and the ones with a number on the right and on the
//! left.

mod kernels;
pub(in crate::ops) mod scalar;
mod table;

pub(in crate::ops) use table::{Row, Slope};

pub use table::{BinaryFn, BinaryNames};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::broadcast::broadcast_shape;
use crate::kernels::elementwise;
use crate::kernels::fixed_loop::FixedLoop;
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::operator::infer::same_type;
use crate::operator::{Call, Dep, Gradient, InplacePair, Kernel, NativeFn, OpDef, OpReq, Value};
use crate::ops::device::binary as device;
use crate::shape::Shape;
use kernels::{
    backward, broadcast, equal_shapes, not_broadcast, with_scalar, with_scalar_backward,
};
use scalar::ScalarParam;
use std::sync::Arc;
use table::TABLE;

fn kernel(f: impl Fn(&Call<'_>) + Send + Sync + 'static) -> Kernel {
    Kernel::cpu(move |call| {
        if call.req.iter().any(|r| *r != OpReq::Null) {
            f(call);
        }
        Ok(())
    })
    .skips_null()
}

/// A kernel of which every call is one loop.
fn one_loop(
    of_call: impl Fn(&Call<'_>) -> Option<FixedLoop> + Clone + Send + Sync + 'static,
) -> Kernel {
    let of = of_call.clone();
    let run = move |call: &Call<'_>| match call.req[0] {
        OpReq::Null => Ok(()),
        _ => run_loop(of(call)),
    };
    Kernel::cpu(run).skips_null().fixed_as(of_call)
}

/// Runs the loop of a call that is under way.
fn run_loop(made: Option<FixedLoop>) -> Result<()> {
    let made = made.ok_or_else(|| Error::internal("a call that is not one loop"))?;
    // SAFETY: the views of the call are valid; the output is an operand or apart.
    unsafe { made.run() };
    Ok(())
}

const LHS_RHS: &[(&str, &str)] = &[("lhs", "First operand."), ("rhs", "Second operand.")];

/// The path in `nd` of the function of an operator.
fn home(name: &str) -> String {
    if name.starts_with('_') { format!("_internal.{name}") } else { name.to_owned() }
}

/// The function's values as an example in the documentation shows them.
fn shown(row: &Row, a: [f32; 2], b: [f32; 2]) -> String {
    let mut out = [0f32; 2];
    let ins = [a.as_ptr().cast(), b.as_ptr().cast()];
    // SAFETY: arrays of two elements each.
    unsafe {
        elementwise::binary(
            row.run[DType::F32 as usize],
            4,
            ins,
            out.as_mut_ptr().cast(),
            2,
            [1, 1],
        )
    };
    format!("[{} {}]", out[0], out[1])
}

fn two_arrays(row: &'static Row, back: &str) -> [OpDef; 2] {
    let deps = |_: &_, _, _| vec![Dep::OutGrad(0), Dep::Input(0), Dep::Input(1)];
    let gradient = |name: String| match row.slope {
        Slope::Zero => Gradient::Zero,
        Slope::Alone => Gradient::use_none(&name),
        Slope::Operands => Gradient::declared(&name, deps),
    };
    let equal = OpDef::plain(row.names[0])
        .aliases(row.aliases[0])
        .doc(&format!(
            "Returns, element by element: {}.\n\nBoth operands have one shape and one dtype, which \
             are those of the output; otherwise it is an error. Integers wrap.\n\nExamples\n\
             --------\n>>> nd.{}(nd.array([3, 5]), nd.array([2, 4]))\n{}\n",
            row.formula,
            home(row.names[0]),
            shown(row, [3., 5.], [2., 4.])
        ))
        .inputs_are(LHS_RHS)
        .elementwise()
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .gradient(match row.names[0] {
            // Both operands have the very gradient of the sum: nothing is copied, nothing
            // allocated.
            "elemwise_add" => Gradient::rule_reading(&[], |_, node| Ok(vec![node.out_grads[0]; 2])),
            _ => gradient(format!("_backward_{back}")),
        })
        .kernel(one_loop(|call| equal_shapes(row, call)))
        .kernels([device::same(row)]);
    let broad = OpDef::plain(row.names[1])
        .aliases(row.aliases[1])
        .doc(&format!(
            "Returns, element by element: {}, with broadcasting.\n\nShapes are aligned at the last \
             axis; an axis of extent 1, or one that is missing, is repeated. Both operands and the \
             output have one dtype. Shapes that do not match are an error. The gradient of a \
             repeated operand is summed over the repetitions.\n\nExamples\n--------\n>>> \
             nd.{}(nd.array([3, 5]), nd.array([2]))\n{}\n",
            row.formula,
            row.names[1],
            shown(row, [3., 5.], [2., 2.])
        ))
        .inputs_are(LHS_RHS)
        .infer_shape(|_, inputs, outputs| {
            let shape = broadcast_shape(&inputs[0], &inputs[1])?;
            outputs[0].merge(&shape)?;
            Ok(inputs.iter().chain(&*outputs).all(|s| s.is_known()))
        })
        .infer_type(same_type)
        .pointwise()
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .gradient(gradient(format!("_backward_broadcast_{back}")))
        .kernel(kernel(|call| broadcast(row, call)).fixed_as(|call| not_broadcast(row, call)))
        .kernels([device::broadcast(row)]);
    [equal, broad]
}

/// The gradient of an operator with a number, as a rule over operators that have gradients
/// themselves.
fn scalar_gradient(row: &'static Row, back: String, left: bool) -> Gradient {
    let times = |factor: fn(f64) -> f64| {
        Gradient::rule_reading(&[], move |b, node| {
            let g = node.out_grad(b, 0)?;
            let s = factor(node.attrs.get::<ScalarParam>().scalar);
            Ok(vec![Some(b.op("_mul_scalar", "", &[("scalar", Value::Float(s))], &[g])?[0])])
        })
    };
    match (row.names[0], left) {
        ("elemwise_add", _) | ("elemwise_sub", false) | ("_mod", false) => {
            Gradient::rule_reading(&[], |b, node| Ok(vec![Some(node.out_grad(b, 0)?)]))
        }
        ("elemwise_sub", true) => times(|_| -1.0),
        ("elemwise_mul", _) => times(|s| s),
        ("elemwise_div", false) => Gradient::rule_reading(&[], |b, node| {
            let g = node.out_grad(b, 0)?;
            let s = node.attrs.get::<ScalarParam>().scalar;
            Ok(vec![Some(b.op("_div_scalar", "", &[("scalar", Value::Float(s))], &[g])?[0])])
        }),
        _ if row.slope == Slope::Zero => Gradient::Zero,
        _ => Gradient::use_in(&back),
    }
}

fn one_array(row: &'static Row, left: bool) -> Vec<OpDef> {
    let at = 2 + left as usize;
    let name = row.names[at];
    if name.is_empty() {
        return Vec::new();
    }
    let back = format!("_backward{name}");
    let (a, b) = if left { ("scalar", "data") } else { ("data", "scalar") };
    let gradient = scalar_gradient(row, back.clone(), left);
    let needs_backward = matches!(gradient, Gradient::Backward { .. });
    let forward = OpDef::new::<ScalarParam>(name)
        .aliases(row.aliases[at])
        .doc(&format!(
            "Returns, element by element, with a = {a} and b = {b}: {}.\n\nThe output has shape \
             and dtype of the array; the number is converted to that dtype first (1.9 becomes 1 \
             beside integers).\n\nExamples\n--------\n>>> nd._internal.{name}(nd.array([3, 5]), \
             scalar=2)\n{}\n",
            row.formula,
            if left { shown(row, [2., 2.], [3., 5.]) } else { shown(row, [3., 5.], [2., 2.]) }
        ))
        .inputs_are(&[("data", "The array.")])
        .elementwise()
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(gradient)
        .kernel(one_loop(move |call| with_scalar(row, call, left)))
        .kernels([device::with_number(row, left)]);
    let mut all = vec![forward];
    if needs_backward {
        all.push(
            OpDef::new::<ScalarParam>(&back)
                .inputs_are(&[("ograd", "Output gradient."), ("data", "The array.")])
                .pointwise()
                .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
                .kernel(one_loop(move |call| with_scalar_backward(row, call, left)))
                .kernels([device::with_number_slope(row, left)]),
        );
    }
    all
}

/// The gradient of the array beside a number, from the output gradient and, unless it is of that
/// alone, the array.
pub(in crate::ops) fn number_slope(function: BinaryFn, left: bool) -> NativeFn {
    Arc::new(move |call| {
        let (g, a) = (&call.inputs[0], call.inputs.last().unwrap_or(&call.inputs[0]));
        let inputs = [g.clone(), a.clone()];
        let call = &Call { inputs: &inputs, ..*call };
        run_loop(with_scalar_backward(function.row(), call, left))
    })
}

pub fn operators() -> Vec<OpDef> {
    let mut all = Vec::new();
    for row in TABLE {
        let back = row.names[1].trim_start_matches("broadcast_");
        all.extend(two_arrays(row, back));
        all.extend(one_array(row, false));
        all.extend(one_array(row, true));
        if row.slope != Slope::Zero {
            for name in [format!("_backward_{back}"), format!("_backward_broadcast_{back}")] {
                let all_inputs = [("ograd", "Output gradient."), LHS_RHS[0], LHS_RHS[1]];
                let count = if row.slope == Slope::Alone { 1 } else { 3 };
                all.push(
                    OpDef::plain(&name)
                        .inputs_are(&all_inputs[..count])
                        .outputs_are(&["lhs", "rhs"])
                        .pointwise()
                        .kernel(kernel(|call| backward(row, call)))
                        .kernels([device::slopes(row)]),
                );
            }
        }
    }
    all.push(grad_add());
    all.push(sum_like());
    all
}

/// Sums gradients: `elemwise_add` under the name that the in-place accumulation looks for.
fn grad_add() -> OpDef {
    OpDef::plain("_grad_add")
        .doc(
            "Returns lhs + rhs; used where gradients are summed. Shapes and dtypes are equal.\n\n\
             Examples\n--------\n>>> nd._internal._grad_add(nd.ones((2,)), nd.ones((2,)))\n[2. \
             2.]\n",
        )
        .inputs_are(LHS_RHS)
        .elementwise()
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .gradient(Gradient::rule_reading(&[], |b, node| {
            let g = node.out_grad(b, 0)?;
            Ok(vec![Some(g), Some(g)])
        }))
        .kernel(one_loop(|call| equal_shapes(&TABLE[0], call)))
        .kernels([device::same(&TABLE[0])])
}

/// The sum over what broadcasting repeated.
fn sum_like() -> OpDef {
    OpDef::plain("_sum_like")
        .doc(
            "Returns lhs summed over the axes along which an array of the shape of rhs was \
             repeated to give it.\n\nShapes are aligned at the last axis, as in broadcasting; the \
             values of rhs are not read.\n\nExamples\n--------\n>>> \
             nd._internal._sum_like(nd.ones((2, 3)), nd.zeros((1, 3)))\n[[2. 2. 2.]]\n",
        )
        .inputs_are(&[("lhs", "The array."), ("rhs", "Gives the shape.")])
        .ignores(&[1])
        .infer_shape(|_, inputs, outputs| {
            outputs[0].merge(&inputs[1])?;
            let known = inputs.iter().all(|s| s.is_known());
            let repeats = |full: Shape| full == inputs[0];
            if known && !broadcast_shape(&inputs[0], &inputs[1]).is_ok_and(repeats) {
                let expected = format!("a shape that is repeated to {}", inputs[0]);
                return Err(Error::argument("rhs", "shape", &inputs[1], &expected));
            }
            Ok(known)
        })
        .infer_type(same_type)
        .gradient(Gradient::rule_reading(&[], |b, node| {
            // Repeats the gradient by adding it to zeros.
            let g = node.out_grad(b, 0)?;
            let zeros = b.op("zeros_like", "", &[], &[node.inputs[0]])?[0];
            Ok(vec![Some(b.op("broadcast_add", "", &[], &[zeros, g])?[0]), None])
        }))
        .kernel(kernel(|call| {
            let (full, out) = (&call.inputs[0], &call.outputs[0]);
            reduce_to(Reduction::Sum, full, out);
        }))
        .kernels([device::sum_like()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Tensor, check_gradient, values};

    fn smooth() -> [Tensor; 2] {
        let positive = [0.7, 1.9, 2.4, 0.4, 1.3, 3.1];
        let other = [1.45, 0.6, 1.1, 2.3, 0.9, 1.7];
        [Tensor::of(&[2, 3], &positive), Tensor::of(&[2, 3], &other)]
    }

    #[test]
    fn gradients_match_numeric_differentiation() {
        for row in TABLE {
            let [a, b] = smooth();
            check_gradient(row.names[0], &[], &[a.clone(), b.clone()], &[0, 1], true);
            check_gradient(row.names[1], &[], &[a.clone(), b.clone()], &[0, 1], true);
            let thin = Tensor::of(&[3], &b.values()[..3]);
            check_gradient(row.names[1], &[], &[a.clone(), thin.clone()], &[0, 1], true);
            let column = Tensor::of(&[2, 1], &a.values()[..2]);
            check_gradient(row.names[1], &[], &[column, thin], &[0, 1], true);
            for name in &row.names[2..] {
                if !name.is_empty() {
                    check_gradient(name, &[("scalar", "1.37")], &[a.clone()], &[0], true);
                }
            }
        }
    }

    #[test]
    fn numbers_take_the_dtype_of_the_array() {
        let x = Tensor::new(&[2], DType::I32, &[5.0, -5.0]);
        assert_eq!(values("_plus_scalar", &[("scalar", "1.9")], &[x.clone()]), [6.0, -4.0]);
        assert_eq!(values("_div_scalar", &[("scalar", "2")], &[x.clone()]), [2.0, -2.0]);
        assert_eq!(values("_mod_scalar", &[("scalar", "3")], &[x.clone()]), [2.0, 1.0]);
        assert_eq!(values("_rminus_scalar", &[("scalar", "1")], &[x]), [-4.0, 6.0]);
    }

    #[test]
    fn broadcasting_matches_elementwise_on_repeated_operands() {
        let a = Tensor::of(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        let b = Tensor::of(&[3, 1], &[10.0, 20.0, 30.0]);
        let want: Vec<f64> = (0..12)
            .map(|i| [1.0, 2.0, 3.0, 4.0][i / 6 * 2 + i % 2] + [10.0, 20.0, 30.0][i / 2 % 3])
            .collect();
        assert_eq!(values("broadcast_add", &[], &[a, b]), want);
    }
}
