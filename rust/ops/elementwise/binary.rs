//! Operators on two arrays, or an array and a number. A row of the table below gives the operator
//! on arrays of equal shape, the broadcasting one, and the ones with a number on the right and on
//! the left.

use crate::dtype::{DType, Element};
use crate::error::Error;
use crate::kernels::arith::Arith;
use crate::kernels::broadcast::{
    broadcast_binary, broadcast_shape, broadcast_strides, broadcast_ternary,
};
use crate::kernels::elementwise::{
    self, Binary, BinaryLoop, Ternary, TernaryLoop, binary_loop, half_ternary_loop,
    plain_binary_loop, plain_ternary_loop, ternary_loop,
};
use crate::kernels::reduce::{Reduction, reduce_to};
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::same_type;
use crate::operator::{Call, Dep, Gradient, InplacePair, Kernel, OpDef, OpReq, Value};
use crate::shape::Shape;
use crate::tensor::View;
use crate::{params, with_dtype};
use half::f16;

/// How the two gradients of a row are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slope {
    /// Comparisons and logic: zero.
    Zero,
    /// Of the output gradient alone (`add`, `sub`).
    Alone,
    /// Of the output gradient and the operands.
    Operands,
}

/// The loops of one function, a dtype each in order of the flags.
type Loops<L> = [L; 8];

pub struct Row {
    /// Registered names: equal shapes, broadcast, number on the right, number on the left. The last
    /// is empty if another operator serves; see [`BinaryFn::operators`].
    pub names: [&'static str; 4],
    pub aliases: [&'static [&'static str]; 4],
    pub formula: &'static str,
    pub slope: Slope,
    run: Loops<BinaryLoop>,
    /// Loops of the two gradients, unless they are zero.
    slopes: Slopes,
}

impl Row {
    /// The number beside an array, in its dtype. One that limits elements saturates: its meaning is
    /// lost when it wraps.
    fn number<T: Element>(&self, x: f64) -> T {
        if matches!(self.names[0], "_maximum" | "_minimum") {
            T::saturating(x)
        } else {
            T::from_f64(x)
        }
    }
}

/// The operators of one function, by their operands.
#[derive(Clone, Copy, Debug)]
pub struct BinaryNames {
    /// Two arrays of equal shape.
    pub same: &'static str,
    /// Two arrays that are broadcast.
    pub broadcast: &'static str,
    /// An array and a number on the right.
    pub right: &'static str,
    /// A number on the left and an array.
    pub left: &'static str,
}

impl BinaryFn {
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The function with its operands exchanged, where that is another one of the table.
    fn mirrored(self) -> BinaryFn {
        match self {
            BinaryFn::Gt => BinaryFn::Lt,
            BinaryFn::Lt => BinaryFn::Gt,
            BinaryFn::Ge => BinaryFn::Le,
            BinaryFn::Le => BinaryFn::Ge,
            own => own,
        }
    }

    /// The operators of this function.
    pub fn operators(self) -> BinaryNames {
        let [same, broadcast, right, left] = self.row().names;
        let left = if left.is_empty() { self.mirrored().row().names[2] } else { left };
        BinaryNames { same, broadcast, right, left }
    }

    /// The names under which symbols use [`BinaryFn::operators`], from which nodes get theirs: the
    /// first aliases of arithmetic (`_Plus`), and the plain names of comparisons (`_equal`).
    pub fn symbol_operators(self) -> BinaryNames {
        let names = self.operators();
        if self.row().slope == Slope::Zero {
            return names;
        }
        let alias = |i: usize| self.row().aliases[i].first().copied();
        let right = alias(2).unwrap_or(names.right);
        BinaryNames {
            same: alias(0).unwrap_or(names.same),
            broadcast: names.broadcast,
            right,
            left: alias(3).unwrap_or(right),
        }
    }
}

type Slopes = Option<[Loops<TernaryLoop>; 2]>;

/// The loops of all dtypes; only single and double precision are compiled for every instruction
/// set.
macro_rules! loops {
    ($simd:ident, $plain:ident, $half:expr, $f:ty) => {
        [
            $simd::<f32, $f>,
            $simd::<f64, $f>,
            $half,
            $plain::<u8, $f>,
            $plain::<i32, $f>,
            $plain::<i8, $f>,
            $plain::<i64, $f>,
            $plain::<bool, $f>,
        ]
    };
}

macro_rules! table {
    ($($variant:ident $row:ident [$elem:literal, $broad:literal, $right:literal, $left:literal]
        [$($a:tt)*] [$($b:tt)*] [$($c:tt)*] [$($d:tt)*]
        $formula:literal, |$x:ident, $y:ident| $f:expr, $slope:ident $(|$g:ident| $dl:expr, $dr:expr)?;)*) => {
        $(mod $row {
            use super::*;
            pub struct F;
            impl Binary for F {
                #[inline(always)]
                fn apply<T: Arith>($x: T, $y: T) -> T { $f }
            }
            $(pub struct L;
            impl Ternary for L {
                #[inline(always)]
                #[allow(unused_variables)] // not every slope needs both operands
                fn apply<T: Arith>($g: T, $x: T, $y: T) -> T {
                    $dl
                }
            }
            pub struct R;
            impl Ternary for R {
                #[inline(always)]
                #[allow(unused_variables)] // as above
                fn apply<T: Arith>($g: T, $x: T, $y: T) -> T {
                    $dr
                }
            }
            pub const SLOPES: Slopes = {
                let _ = stringify!($g);
                Some([
                    loops!(ternary_loop, plain_ternary_loop, half_ternary_loop::<L>, L),
                    loops!(ternary_loop, plain_ternary_loop, half_ternary_loop::<R>, R),
                ])
            };
            #[cfg(any())])?
            pub const SLOPES: Slopes = None;
        })*
        /// A function of two operands: a row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum BinaryFn {
            $(#[doc = $formula] $variant,)*
        }

        impl BinaryFn {
            /// Every function, in the order of the rows.
            pub const ALL: &[BinaryFn] = &[$(BinaryFn::$variant),*];

            /// `add`, `lesser_equal` ...
            pub fn name(self) -> &'static str {
                match self {
                    $(BinaryFn::$variant => stringify!($row),)*
                }
            }
        }

        /// All rows, in the order of [`BinaryFn::ALL`].
        static TABLE: &[Row] = &[$(Row {
            names: [$elem, $broad, $right, $left],
            aliases: [&[$($a)*], &[$($b)*], &[$($c)*], &[$($d)*]],
            formula: $formula,
            slope: Slope::$slope,
            run: loops!(binary_loop, plain_binary_loop, plain_binary_loop::<f16, $row::F>, $row::F),
            slopes: $row::SLOPES,
        }),*];
    };
}

/// log(x) in any dtype.
#[inline(always)]
fn ln<T: Arith>(x: T) -> T {
    T::from_f64(x.to_f64().ln())
}

#[inline(always)]
fn neg<T: Arith>(x: T) -> T {
    T::zero().sub(x)
}

table! {
    Add add ["elemwise_add", "broadcast_add", "_plus_scalar", ""]
        ["_Plus", "_add", "_plus", "_sparse_elemwise_add"] ["broadcast_plus", "_sparse_broadcast_add", "_sparse_broadcast_plus"] ["_PlusScalar"] []
        "a + b", |a, b| a.add(b), Alone |g| g, g;
    Sub sub ["elemwise_sub", "broadcast_sub", "_minus_scalar", "_rminus_scalar"]
        ["_Minus", "_minus", "_sub", "_sparse_elemwise_sub"] ["broadcast_minus", "_sparse_broadcast_sub", "_sparse_broadcast_minus"] ["_MinusScalar"] ["_RMinusScalar"]
        "a - b", |a, b| a.sub(b), Alone |g| g, neg(g);
    Mul mul ["elemwise_mul", "broadcast_mul", "_mul_scalar", ""]
        ["_Mul", "_mul", "_sparse_elemwise_mul"] ["_sparse_broadcast_mul"] ["_MulScalar"] []
        "a * b", |a, b| a.mul(b), Operands |g| g.mul(b), g.mul(a);
    Div div ["elemwise_div", "broadcast_div", "_div_scalar", "_rdiv_scalar"]
        ["_Div", "_div", "_sparse_elemwise_div"] ["_sparse_broadcast_div"] ["_DivScalar"] ["_RDivScalar"]
        "a / b, of integers toward 0 (and 0 where b is 0)", |a, b| a.div(b), Operands |g| g.div(b), neg(g.mul(a.div(b)).div(b));
    Mod modulo ["_mod", "broadcast_mod", "_mod_scalar", "_rmod_scalar"]
        ["_Mod"] [] ["_ModScalar"] ["_RModScalar"]
        "a - floor(a / b) * b, 0 where b is 0", |a, b| a.rem(b), Operands |g| g,
        neg(g.mul(T::from_f64((a.to_f64() / b.to_f64()).floor())));
    Pow power ["_power", "broadcast_power", "_power_scalar", "_rpower_scalar"]
        ["_Power"] [] ["_PowerScalar"] ["_RPowerScalar"]
        "a to the power of b", |a, b| a.pow(b), Operands |g| g.mul(b.mul(a.pow(b.sub(T::one())))), g.mul(a.pow(b).mul(ln(a)));
    Maximum maximum ["_maximum", "broadcast_maximum", "_maximum_scalar", ""]
        ["_Maximum"] ["_npi_maximum"] ["_MaximumScalar", "_npi_maximum_scalar"] []
        "the greater of a and b (where they are equal, a gets the gradient)", |a, b| a.max(b), Operands |g| g.mul(T::truth(a >= b)), g.mul(T::truth(a < b));
    Minimum minimum ["_minimum", "broadcast_minimum", "_minimum_scalar", ""]
        ["_Minimum"] ["_npi_minimum"] ["_MinimumScalar", "_npi_minimum_scalar"] []
        "the lesser of a and b (where they are equal, a gets the gradient)", |a, b| a.min(b), Operands |g| g.mul(T::truth(a <= b)), g.mul(T::truth(a > b));
    Hypot hypot ["_hypot", "broadcast_hypot", "_hypot_scalar", ""]
        ["_Hypot"] [] ["_HypotScalar", "_npi_hypot_scalar"] []
        "sqrt(a * a + b * b)", |a, b| a.hypot(b), Operands |g| g.mul(a.div(a.hypot(b))), g.mul(b.div(a.hypot(b)));
    Eq equal ["_equal", "broadcast_equal", "_equal_scalar", ""] ["_Equal"] [] ["_EqualScalar"] []
        "1 where a equals b, else 0", |a, b| T::truth(a == b), Zero;
    Ne not_equal ["_not_equal", "broadcast_not_equal", "_not_equal_scalar", ""] ["_Not_Equal"] [] ["_NotEqualScalar"] []
        "1 where a differs from b, else 0", |a, b| T::truth(a != b), Zero;
    Gt greater ["_greater", "broadcast_greater", "_greater_scalar", ""] ["_Greater"] [] ["_GreaterScalar"] []
        "1 where a is greater than b, else 0", |a, b| T::truth(a > b), Zero;
    Ge greater_equal ["_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar", ""] ["_Greater_Equal"] [] ["_GreaterEqualScalar"] []
        "1 where a is at least b, else 0", |a, b| T::truth(a >= b), Zero;
    Lt lesser ["_lesser", "broadcast_lesser", "_lesser_scalar", ""] ["_Lesser"] [] ["_LesserScalar"] []
        "1 where a is less than b, else 0", |a, b| T::truth(a < b), Zero;
    Le lesser_equal ["_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar", ""] ["_Lesser_Equal"] [] ["_LesserEqualScalar"] []
        "1 where a is at most b, else 0", |a, b| T::truth(a <= b), Zero;
    And logical_and ["_logical_and", "broadcast_logical_and", "_logical_and_scalar", ""] ["_Logical_And"] [] ["_LogicalAndScalar"] []
        "1 where neither a nor b is 0, else 0", |a, b| T::truth(a.is_true() && b.is_true()), Zero;
    Or logical_or ["_logical_or", "broadcast_logical_or", "_logical_or_scalar", ""] ["_Logical_Or"] [] ["_LogicalOrScalar"] []
        "1 where a or b is not 0, else 0", |a, b| T::truth(a.is_true() || b.is_true()), Zero;
    Xor logical_xor ["_logical_xor", "broadcast_logical_xor", "_logical_xor_scalar", ""] ["_Logical_Xor"] [] ["_LogicalXorScalar"] []
        "1 where exactly one of a and b is not 0, else 0", |a, b| T::truth(a.is_true() != b.is_true()), Zero;
}

params! {
    /// Parameters of the operators with a number.
    pub struct ScalarParam {
        scalar: f64, default(1.0), "The number; converted to the dtype of the array.";
        is_int: bool, default(true), "Was the number an integer?";
    }
}

/// The operands of a loop: address and step of each.
fn equal_shapes(row: &Row, call: &Call<'_>) {
    let [a, b, out] = [&call.inputs[0], &call.inputs[1], &call.outputs[0]];
    let run = row.run[out.dtype() as usize];
    let ins = [a.ptr().cast_const(), b.ptr().cast_const()];
    // SAFETY: views of equal shapes; the output is an operand or apart.
    unsafe { elementwise::binary(run, out.dtype().size(), ins, out.ptr(), out.size(), [1, 1]) }
}

fn broadcast(row: &Row, call: &Call<'_>) {
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
fn scalar_bytes(row: &Row, dtype: DType, x: f64) -> [u8; 8] {
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

fn with_scalar(row: &Row, call: &Call<'_>, left: bool) {
    let (a, out) = (&call.inputs[0], &call.outputs[0]);
    let number = Aligned(scalar_bytes(row, out.dtype(), call.attrs.get::<ScalarParam>().scalar));
    let number = number.0.as_ptr();
    let run = row.run[out.dtype() as usize];
    let (ins, steps) =
        if left { ([number, a.ptr()], [0, 1]) } else { ([a.ptr().cast_const(), number], [1, 0]) };
    // SAFETY: array and output have equal shapes; the number is one element with step 0.
    unsafe { elementwise::binary(run, out.dtype().size(), ins, out.ptr(), out.size(), steps) }
}

/// `grad = slope(g, a, b)` where one of the operands is a number.
fn with_scalar_backward(row: &Row, call: &Call<'_>, left: bool) {
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
fn backward(row: &Row, call: &Call<'_>) {
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

fn kernel(f: impl Fn(&Call<'_>) + Send + Sync + 'static) -> Kernel {
    Kernel::cpu(move |call| {
        if call.req.iter().any(|r| *r != OpReq::Null) {
            f(call);
        }
        Ok(())
    })
    .skips_null()
}

const LHS_RHS: &[(&str, &str)] = &[("lhs", "First operand."), ("rhs", "Second operand.")];

/// Where in `nd` the function of an operator is.
fn home(name: &str) -> String {
    if name.starts_with('_') { format!("_internal.{name}") } else { name.to_owned() }
}

/// What the row's function gives, as an example in the documentation shows it.
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
            "Returns, element by element: {}.\n\nBoth operands have one shape and one dtype, which are those of the \
             output; otherwise it is an error. Integers wrap.\n\nExamples\n--------\n>>> nd.{}(nd.array([3, 5]), nd.array([2, 4]))\n{}\n",
            row.formula, home(row.names[0]), shown(row, [3., 5.], [2., 4.])
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
        .kernel(kernel(|call| equal_shapes(row, call)));
    let broad = OpDef::plain(row.names[1])
        .aliases(row.aliases[1])
        .doc(&format!(
            "Returns, element by element: {}, with broadcasting.\n\nShapes are aligned at the last axis; an axis of \
             extent 1, or one that is missing, is repeated. Both operands and the output have one dtype. Shapes that \
             do not match are an error. The gradient of a repeated operand is summed over the repetitions.\n\n\
             Examples\n--------\n>>> nd.{}(nd.array([3, 5]), nd.array([2]))\n{}\n",
            row.formula, row.names[1], shown(row, [3., 5.], [2., 2.])
        ))
        .inputs_are(LHS_RHS)
        .infer_shape(|_, inputs, outputs| {
            let shape = broadcast_shape(&inputs[0], &inputs[1])?;
            outputs[0].merge(&shape)?;
            Ok(inputs.iter().chain(&*outputs).all(|s| s.is_known()))
        })
        .infer_type(same_type)
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .gradient(gradient(format!("_backward_broadcast_{back}")))
        .kernel(kernel(|call| broadcast(row, call)));
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
            "Returns, element by element, with a = {a} and b = {b}: {}.\n\nThe output has shape and dtype of the array; \
             the number is converted to that dtype first (1.9 becomes 1 beside integers).\n\nExamples\n--------\n>>> \
             nd._internal.{name}(nd.array([3, 5]), scalar=2)\n{}\n",
            row.formula,
            if left { shown(row, [2., 2.], [3., 5.]) } else { shown(row, [3., 5.], [2., 2.]) }
        ))
        .inputs_are(&[("data", "The array.")])
        .elementwise()
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(gradient)
        .kernel(kernel(move |call| with_scalar(row, call, left)));
    let mut all = vec![forward];
    if needs_backward {
        all.push(
            OpDef::new::<ScalarParam>(&back)
                .inputs_are(&[("ograd", "Output gradient."), ("data", "The array.")])
                .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
                .kernel(kernel(move |call| with_scalar_backward(row, call, left))),
        );
    }
    all
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
                        .kernel(kernel(|call| backward(row, call))),
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
        .doc("Returns lhs + rhs; used where gradients are summed. Shapes and dtypes are equal.\n\nExamples\n--------\n>>> nd._internal._grad_add(nd.ones((2,)), nd.ones((2,)))\n[2. 2.]\n")
        .inputs_are(LHS_RHS)
        .elementwise()
        .inplace(&[InplacePair::new(0, 0), InplacePair::new(1, 0)])
        .gradient(Gradient::rule_reading(&[], |b, node| {
            let g = node.out_grad(b, 0)?;
            Ok(vec![Some(g), Some(g)])
        }))
        .kernel(kernel(|call| equal_shapes(&TABLE[0], call)))
}

/// The sum over what broadcasting repeated.
fn sum_like() -> OpDef {
    OpDef::plain("_sum_like")
        .doc("Returns lhs summed over the axes along which an array of the shape of rhs was repeated to give it.\n\nShapes are aligned at the last axis, as in broadcasting; the values of rhs are not read.\n\nExamples\n--------\n>>> nd._internal._sum_like(nd.ones((2, 3)), nd.zeros((1, 3)))\n[[2. 2. 2.]]\n")
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
