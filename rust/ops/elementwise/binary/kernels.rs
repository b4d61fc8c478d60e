//! The kernels of a row of the table.

use super::scalar::{ScalarParam, scalar_bytes};
use super::table::{BinaryFn, Row};
use crate::kernels::broadcast::{broadcast_binary, broadcast_strides, broadcast_ternary};
use crate::kernels::fixed_loop::{FixedLoop, Operand};
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::kernels::scratch::with_scratch;
use crate::operator::{Call, OpReq};
use crate::tensor::View;

/// The loop of a row over the elements of `out`.
fn loop_of(row: &Row, operands: [Operand; 2], out: &View) -> FixedLoop {
    let dtype = out.dtype();
    FixedLoop::binary(row.run[dtype as usize], dtype.size(), operands, out.ptr(), out.size())
}

fn array(view: &View) -> Operand {
    Operand::Array(view.ptr())
}

/// Two arrays of equal shape.
pub fn equal_shapes(row: &Row, call: &Call<'_>) -> Option<FixedLoop> {
    Some(loop_of(row, [array(&call.inputs[0]), array(&call.inputs[1])], &call.outputs[0]))
}

/// Two arrays that may be broadcast; `None` if they are.
pub fn not_broadcast(row: &Row, call: &Call<'_>) -> Option<FixedLoop> {
    let is_equal = call.inputs[0].shape() == call.inputs[1].shape();
    is_equal.then(|| equal_shapes(row, call)).flatten()
}

/// Two arrays that are broadcast.
pub fn broadcast(row: &Row, call: &Call<'_>) {
    let [a, b, out] = [&call.inputs[0], &call.inputs[1], &call.outputs[0]];
    if let Some(equal) = not_broadcast(row, call) {
        // SAFETY: views of equal shapes; the output is an operand or apart.
        return unsafe { equal.run() };
    }
    let run = row.run[out.dtype() as usize];
    let [sa, sb] = [a, b].map(|v| broadcast_strides(v.shape(), out.shape()));
    // SAFETY: the strides are those of the views inside the output's shape.
    unsafe {
        broadcast_binary(
            run,
            out.dtype().size(),
            out.dims(),
            (a.ptr(), &sa),
            (b.ptr(), &sb),
            out.ptr(),
        )
    }
}

/// The operands of a row for an array and the parameter, which is on the left or on the right.
fn beside_number(row: &Row, call: &Call<'_>, a: &View, left: bool) -> [Operand; 2] {
    let scalar = call.attrs.get::<ScalarParam>().scalar;
    let number = Operand::Number(scalar_bytes(row, a.dtype(), scalar));
    if left { [number, array(a)] } else { [array(a), number] }
}

/// An array and a number, which is on the left or on the right. A square is a product.
pub fn with_scalar(row: &Row, call: &Call<'_>, left: bool) -> Option<FixedLoop> {
    let (a, out) = (&call.inputs[0], &call.outputs[0]);
    if !left && row.is(BinaryFn::Pow) && call.attrs.get::<ScalarParam>().scalar == 2.0 {
        return Some(loop_of(BinaryFn::Mul.row(), [array(a); 2], out));
    }
    Some(loop_of(row, beside_number(row, call, a, left), out))
}

/// `grad = slope(g, a, b)` where one of the operands is a number.
pub fn with_scalar_backward(row: &Row, call: &Call<'_>, left: bool) -> Option<FixedLoop> {
    let (g, a, out) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    let (dtype, side) = (out.dtype(), usize::from(left));
    let run = row.slopes.as_ref()?[side][dtype as usize];
    let operands = beside_number(row, call, a, left);
    Some(FixedLoop::ternary(run, dtype.size(), g.ptr(), operands, out.ptr(), out.size()))
}

/// Both gradients; an operand that was broadcast gets the sum over its repetitions.
pub fn backward(row: &Row, call: &Call<'_>) {
    let g = &call.inputs[0];
    for (side, loops) in row.slopes.iter().flatten().enumerate() {
        if call.req[side] == OpReq::Null {
            continue;
        }
        let out = &call.outputs[side];
        let run = loops[out.dtype() as usize];
        let product = |to: *mut u8| {
            // Without operands the slope is of the output gradient alone.
            let operand = |i: usize| call.inputs.get(1 + i).unwrap_or(g);
            let [a, b] = [operand(0), operand(1)];
            let [sa, sb] = [a, b].map(|v| broadcast_strides(v.shape(), g.shape()));
            // SAFETY: the strides are those of the views inside the gradient's shape, which `to`
            // holds.
            unsafe {
                let (a, b) = ((a.ptr().cast_const(), &sa[..]), (b.ptr().cast_const(), &sb[..]));
                broadcast_ternary(run, g.dtype().size(), g.dims(), g.ptr(), a, b, to);
            }
        };
        if out.shape() == g.shape() {
            product(out.ptr());
        } else {
            with_scratch::<i64, _>(g.size_bytes().div_ceil(8), |space| {
                let space = space.as_mut_ptr().cast();
                product(space);
                // SAFETY: the scratch holds what `product` wrote.
                let full = unsafe { View::new(space, g.shape().clone(), g.dtype()) };
                reduce_to(Reduction::Sum, &full, out);
            });
        }
    }
}
