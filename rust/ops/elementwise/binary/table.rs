//! The functions of two operands, as a table, with their operators and loops.

use crate::dtype::Element;
use crate::kernels::arith::Arith;
use crate::kernels::elementwise::{
    Binary, BinaryLoop, Ternary, TernaryLoop, binary_loop, half_ternary_loop, plain_binary_loop,
    plain_ternary_loop, ternary_loop,
};
use crate::ops::device::formula::Formula;
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

/// The loops of one function for every dtype, in the order of [`DType`].
pub type Loops<L> = [L; 8];

/// A function with its operators.
pub struct Row {
    /// Registered names: equal shapes, broadcast, number on the right, number on the left. The last
    /// is empty if another operator serves; see [`BinaryFn::operators`].
    pub names: [&'static str; 4],
    pub aliases: [&'static [&'static str]; 4],
    pub formula: &'static str,
    pub slope: Slope,
    /// Loops of the function.
    pub run: Loops<BinaryLoop>,
    /// Loops of the two gradients, unless they are zero.
    pub slopes: Slopes,
    /// The text of the function and of its two gradients, for devices.
    pub formulas: [Option<Formula>; 3],
}

impl Row {
    /// The name of the function among the rows.
    pub fn name(&self) -> &'static str {
        let own = BinaryFn::ALL.iter().find(|f| self.is(**f));
        own.map_or("", |f| f.name())
    }

    /// Is this the row of `function`?
    pub fn is(&self, function: BinaryFn) -> bool {
        std::ptr::eq(self, function.row())
    }

    /// A scalar operand in the dtype of the array. Bounds (of maximum and minimum) saturate, as
    /// they lose their meaning when they wrap.
    pub fn number<T: Element>(&self, x: f64) -> T {
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
    pub fn row(self) -> &'static Row {
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

pub type Slopes = Option<[Loops<TernaryLoop>; 2]>;

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

macro_rules! formulas {
    (($($x:ident),*) $f:expr) => {
        [Some(Formula { operands: &[$(stringify!($x)),*], text: stringify!($f) }), None, None]
    };
    (($($x:ident),*) $f:expr, ($($o:ident),*) $dl:expr, $dr:expr) => {
        [
            Some(Formula { operands: &[$(stringify!($x)),*], text: stringify!($f) }),
            Some(Formula { operands: &[$(stringify!($o)),*], text: stringify!($dl) }),
            Some(Formula { operands: &[$(stringify!($o)),*], text: stringify!($dr) }),
        ]
    };
}

macro_rules! table {
    ($($variant:ident $row:ident [$elem:literal, $broad:literal, $right:literal, $left:literal]
        [$($a:tt)*] [$($b:tt)*] [$($c:tt)*] [$($d:tt)*]
        $formula:literal, $(quick |$p:ident, $q:ident| $quick:expr, again $again:literal,)? |$x:ident, $y:ident| $f:expr, $slope:ident $(|$g:ident| $dl:expr, $dr:expr)?;)*) => {
        $(mod $row {
            use super::*;
            pub struct F;
            impl Binary for F {
                #[inline(always)]
                fn apply<T: Arith>($x: T, $y: T) -> T { $f }
                $(
                    const AGAIN: bool = $again;
                    #[inline(always)]
                    fn quick<T: Arith, const FUSED: bool>($p: T, $q: T) -> T { $quick }
                )?
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
        pub static TABLE: &[Row] = &[$(Row {
            names: [$elem, $broad, $right, $left],
            aliases: [&[$($a)*], &[$($b)*], &[$($c)*], &[$($d)*]],
            formula: $formula,
            slope: Slope::$slope,
            run: loops!(binary_loop, plain_binary_loop, binary_loop::<f16, $row::F>, $row::F),
            slopes: $row::SLOPES,
            formulas: formulas!(($x, $y) $f $(, ($g, $x, $y) $dl, $dr)?),
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
        ["_Plus", "_add", "_plus", "_sparse_elemwise_add"] ["broadcast_plus", "\
             _sparse_broadcast_add", "_sparse_broadcast_plus"] ["_PlusScalar", "\
                  _scatter_plus_scalar"] []
        "a + b", |a, b| a.add(b), Alone |g| g, g;
    Sub sub ["elemwise_sub", "broadcast_sub", "_minus_scalar", "_rminus_scalar"]
        ["_Minus", "_minus", "_sub", "_sparse_elemwise_sub"] ["broadcast_minus", "\
             _sparse_broadcast_sub", "_sparse_broadcast_minus"] ["_MinusScalar", "\
                  _scatter_minus_scalar"] ["_RMinusScalar"]
        "a - b", |a, b| a.sub(b), Alone |g| g, neg(g);
    Mul mul ["elemwise_mul", "broadcast_mul", "_mul_scalar", ""]
        ["_Mul", "_mul", "_sparse_elemwise_mul"] ["_sparse_broadcast_mul"] ["_MulScalar"] []
        "a * b", |a, b| a.mul(b), Operands |g| g.mul(b), g.mul(a);
    Div div ["elemwise_div", "broadcast_div", "_div_scalar", "_rdiv_scalar"]
        ["_Div", "_div", "_sparse_elemwise_div", "_scatter_elemwise_div"] ["_sparse_broadcast_div"]
        ["_DivScalar"] ["_RDivScalar"]
        "a / b, of integers toward 0 (and 0 where b is 0)", |a, b| a.div(b), Operands |g| g.div(b), neg(g.mul(a.div(b)).div(b));
    Mod modulo ["_mod", "broadcast_mod", "_mod_scalar", "_rmod_scalar"]
        ["_Mod"] [] ["_ModScalar"] ["_RModScalar"]
        "a - floor(a / b) * b, 0 where b is 0", quick |a, b| a.quick_rem(b), again true, |a, b| a.rem(b), Operands |g| g,
        neg(g.mul(T::from_f64((a.to_f64() / b.to_f64()).floor())));
    Pow power ["_power", "broadcast_power", "_power_scalar", "_rpower_scalar"]
        ["_Power"] [] ["_PowerScalar"] ["_RPowerScalar"]
        "a to the power of b", quick |a, b| a.quick_pow::<FUSED>(b), again false,
        |a, b| a.pow(b), Operands |g| g.mul(b.mul(a.pow(b.sub(T::one())))), g.mul(a.pow(b).mul(ln(a)));
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
    Ne not_equal ["_not_equal", "broadcast_not_equal", "_not_equal_scalar", ""] ["_Not_Equal"] []
        ["_NotEqualScalar"] []
        "1 where a differs from b, else 0", |a, b| T::truth(a != b), Zero;
    Gt greater ["_greater", "broadcast_greater", "_greater_scalar", ""] ["_Greater"] []
        ["_GreaterScalar"] []
        "1 where a is greater than b, else 0", |a, b| T::truth(a > b), Zero;
    Ge greater_equal ["_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar", ""]
        ["_Greater_Equal"] [] ["_GreaterEqualScalar"] []
        "1 where a is at least b, else 0", |a, b| T::truth(a >= b), Zero;
    Lt lesser ["_lesser", "broadcast_lesser", "_lesser_scalar", ""] ["_Lesser"] [] ["_LesserScalar"]
        []
        "1 where a is less than b, else 0", |a, b| T::truth(a < b), Zero;
    Le lesser_equal ["_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar", ""]
        ["_Lesser_Equal"] [] ["_LesserEqualScalar"] []
        "1 where a is at most b, else 0", |a, b| T::truth(a <= b), Zero;
    And logical_and ["_logical_and", "broadcast_logical_and", "_logical_and_scalar", ""]
        ["_Logical_And"] [] ["_LogicalAndScalar"] []
        "1 where neither a nor b is 0, else 0", |a, b| T::truth(a.is_true() && b.is_true()), Zero;
    Or logical_or ["_logical_or", "broadcast_logical_or", "_logical_or_scalar", ""] ["_Logical_Or"]
        [] ["_LogicalOrScalar"] []
        "1 where a or b is not 0, else 0", |a, b| T::truth(a.is_true() || b.is_true()), Zero;
    Xor logical_xor ["_logical_xor", "broadcast_logical_xor", "_logical_xor_scalar", ""]
        ["_Logical_Xor"] [] ["_LogicalXorScalar"] []
        "1 where exactly one of a and b is not 0, else 0", |a, b| T::truth(a.is_true() != b.is_true()), Zero;
}
