//! The kernels of a row of the table.

use super::ScalarParam;
use super::table::{BinaryFn, Row};
use crate::dtype::DType;
use crate::kernels::broadcast::{broadcast_binary, broadcast_strides, broadcast_ternary};
use crate::kernels::elementwise;
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::kernels::scratch::with_scratch;
use crate::operator::{Call, OpReq};
use crate::tensor::View;
use crate::with_dtype;

/// Two arrays of equal shape.
pub fn equal_shapes(row: &Row, call: &Call<'_>) {
    let [a, b, out] = [&call.inputs[0], &call.inputs[1], &call.outputs[0]];
    let run = row.run[out.dtype() as usize];
    let ins = [a.ptr().cast_const(), b.ptr().cast_const()];
    // SAFETY: views of equal shapes; the output is an operand or apart.
    unsafe { elementwise::binary(run, out.dtype().size(), ins, out.ptr(), out.size(), [1, 1]) }
}

/// Two arrays that are broadcast.
pub fn broadcast(row: &Row, call: &Call<'_>) {
    let [a, b, out] = [&call.inputs[0], &call.inputs[1], &call.outputs[0]];
    if a.shape() == b.shape() {
        return equal_shapes(row, call);
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

/// The bytes of a number in the dtype of an array.
pub fn scalar_bytes(row: &Row, dtype: DType, x: f64) -> [u8; 8] {
    let mut bytes = [0; 8];
    with_dtype!(dtype, T => {
        let value = row.number::<T>(x);
        // SAFETY: no element is larger than eight bytes.
        unsafe { bytes.as_mut_ptr().cast::<T>().write_unaligned(value) };
    });
    bytes
}

/// Eight bytes on an address that every dtype can have.
#[repr(align(8))]
struct Aligned([u8; 8]);

/// An array and a number, which is on the left or on the right. A square is a product.
pub fn with_scalar(row: &Row, call: &Call<'_>, left: bool) {
    let (a, out) = (&call.inputs[0], &call.outputs[0]);
    let scalar = call.attrs.get::<ScalarParam>().scalar;
    let number = Aligned(scalar_bytes(row, out.dtype(), scalar));
    let number = number.0.as_ptr();
    if !left && scalar == 2.0 && row.is(BinaryFn::Pow) {
        let run = BinaryFn::Mul.row().run[out.dtype() as usize];
        let ins = [a.ptr().cast_const(); 2];
        // SAFETY: array and output have equal shapes.
        unsafe { elementwise::binary(run, out.dtype().size(), ins, out.ptr(), out.size(), [1, 1]) };
        return;
    }
    let run = row.run[out.dtype() as usize];
    let (ins, steps) =
        if left { ([number, a.ptr()], [0, 1]) } else { ([a.ptr().cast_const(), number], [1, 0]) };
    // SAFETY: array and output have equal shapes; the number is one element with step 0.
    unsafe { elementwise::binary(run, out.dtype().size(), ins, out.ptr(), out.size(), steps) }
}

/// `grad = slope(g, a, b)` where one of the operands is a number.
pub fn with_scalar_backward(row: &Row, call: &Call<'_>, left: bool) {
    let (g, a, out) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    let number = Aligned(scalar_bytes(row, out.dtype(), call.attrs.get::<ScalarParam>().scalar));
    let number = number.0.as_ptr();
    let Some(slopes) = &row.slopes else { return };
    let at = out.dtype() as usize;
    let a = a.ptr().cast_const();
    // SAFETY: gradient, array and output have equal shapes; the number is one element with step 0.
    unsafe {
        match left {
            true => slopes[1][at](g.ptr(), number, a, out.ptr(), out.size(), [0, 1]),
            false => slopes[0][at](g.ptr(), a, number, out.ptr(), out.size(), [1, 0]),
        }
    }
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
