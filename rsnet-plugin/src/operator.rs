//! What an operator says of itself.

use crate::abi::{self, kind};
use crate::{Call, DType, Gradient, Infer, Result};
use std::any::Any;
use std::ffi::CStr;

/// An input or output argument.
#[derive(Clone, Copy)]
pub struct Arg {
    pub name: &'static CStr,
    pub doc: &'static CStr,
    /// Arrays, or the least number of arrays.
    pub count: i32,
    /// Those of `plugin.h`: [`abi::OPTIONAL`] and so on.
    pub flags: u32,
}

impl Arg {
    /// An argument of one array.
    pub const fn new(name: &'static CStr) -> Arg {
        Arg { name, doc: c"", count: 1, flags: 0 }
    }

    pub const fn doc(self, doc: &'static CStr) -> Arg {
        Arg { doc, ..self }
    }

    /// So many arrays.
    pub const fn count(self, count: i32) -> Arg {
        Arg { count, ..self }
    }

    /// So many arrays or more.
    pub const fn at_least(self, count: i32) -> Arg {
        Arg { count, ..self }.flag(abi::AT_LEAST)
    }

    /// May be absent.
    pub const fn optional(self) -> Arg {
        self.flag(abi::OPTIONAL)
    }

    /// Input: an auxiliary state, which kernels modify by [`Call::aux`].
    pub const fn aux(self) -> Arg {
        self.flag(abi::STATE)
    }

    /// Output: for the gradient only; hidden outputs stand last.
    pub const fn hidden(self) -> Arg {
        self.flag(abi::HIDDEN)
    }

    /// Input: only shape and dtype matter.
    pub const fn ignored(self) -> Arg {
        self.flag(abi::IGNORED)
    }

    /// Input: the gradient need not bind it, and is then zero.
    pub const fn no_grad(self) -> Arg {
        self.flag(abi::NO_GRAD)
    }

    const fn flag(self, flag: u32) -> Arg {
        Arg { flags: self.flags | flag, ..self }
    }
}

/// An attribute.
#[derive(Clone, Copy)]
pub struct Attr {
    pub name: &'static CStr,
    /// One of [`abi::kind`].
    pub kind: i32,
    /// As Python writes the value; without one it has to be given.
    pub default: Option<&'static CStr>,
    pub doc: &'static CStr,
    /// The values of one of kind `ENUM`.
    pub choices: &'static [&'static CStr],
    pub may_be_none: bool,
    /// Bounds, both allowed themselves.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Attr {
    /// An attribute that has to be given.
    pub const fn required(name: &'static CStr, kind: i32) -> Attr {
        let (default, doc, choices, may_be_none) = (None, c"", &[] as &[&CStr], false);
        Attr { name, kind, default, doc, choices, may_be_none, low: None, high: None }
    }

    /// An attribute with a default, which is written as in Python.
    pub const fn new(name: &'static CStr, kind: i32, default: &'static CStr) -> Attr {
        Attr { default: Some(default), ..Attr::required(name, kind) }
    }

    /// One of these texts.
    pub const fn one_of(
        name: &'static CStr,
        choices: &'static [&'static CStr],
        default: &'static CStr,
    ) -> Attr {
        Attr { choices, ..Attr::new(name, kind::ENUM, default) }
    }

    pub const fn doc(self, doc: &'static CStr) -> Attr {
        Attr { doc, ..self }
    }

    /// `None` is a value, too.
    pub const fn or_none(self) -> Attr {
        Attr { may_be_none: true, ..self }
    }

    pub const fn at_least(self, low: f64) -> Attr {
        Attr { low: Some(low), ..self }
    }

    pub const fn at_most(self, high: f64) -> Attr {
        Attr { high: Some(high), ..self }
    }
}

/// How the condition of a kernel compares.
#[derive(Clone, Copy)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The condition of a kernel.
#[derive(Clone, Copy)]
pub enum When {
    Always,
    /// [`abi::CPU`] or [`abi::GPU`].
    Device(i32),
    /// Of an array of an argument.
    DType(&'static CStr, i32, DType),
    /// The number of axes of an array of an argument.
    Axes(&'static CStr, i32, Compare, i64),
    /// An attribute, beside a value that is written as in Python.
    Attr(&'static CStr, Compare, &'static CStr),
    All(&'static [When]),
    Any(&'static [When]),
    Not(&'static When),
}

/// A kernel.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// For messages.
    pub name: &'static CStr,
    pub when: When,
    /// Of all kernels that match the one at the highest runs; two are an error.
    pub priority: i32,
    /// Those of `plugin.h`: [`abi::ALWAYS_COMPUTE`], [`abi::SKIPS_NULL`], [`abi::ACCUMULATES`].
    pub flags: u32,
    /// Bytes that [`Call::tmp`] has.
    pub tmp_bytes: Option<fn(&Infer<'_>) -> Result<u64>>,
    pub compute: fn(&Call<'_>) -> Result,
}

impl Kernel {
    /// A kernel for every case.
    pub const fn new(compute: fn(&Call<'_>) -> Result) -> Kernel {
        let (name, when, tmp_bytes) = (c"", When::Always, None);
        Kernel { name, when, priority: 0, flags: 0, tmp_bytes, compute }
    }

    pub const fn named(self, name: &'static CStr) -> Kernel {
        Kernel { name, ..self }
    }

    pub const fn when(self, when: When) -> Kernel {
        Kernel { when, ..self }
    }

    pub const fn priority(self, priority: i32) -> Kernel {
        Kernel { priority, ..self }
    }

    pub const fn flags(self, flags: u32) -> Kernel {
        Kernel { flags, ..self }
    }

    pub const fn tmp_bytes(self, tmp_bytes: fn(&Infer<'_>) -> Result<u64>) -> Kernel {
        Kernel { tmp_bytes: Some(tmp_bytes), ..self }
    }
}

/// What one node, or recorded call, keeps from run to run.
pub type State = Box<dyn Any + Send>;

/// An operator.
pub trait Operator: 'static {
    const NAME: &'static CStr;
    const DOC: &'static CStr = c"";
    const ALIASES: &'static [&'static CStr] = &[];
    const INPUTS: &'static [Arg];
    const OUTPUTS: &'static [Arg];
    const ATTRS: &'static [Attr] = &[];
    const KERNELS: &'static [Kernel] = &[Kernel::new(Self::compute)];
    /// Pairs of an input and an output that may be the same memory: [`Call::in_place`].
    const INPLACE: &'static [(i32, i32)] = &[];
    /// Has it a [`Operator::gradient`]?
    const DIFFERENTIABLE: bool = false;
    /// Does it draw random numbers, by [`Call::random`]?
    const RANDOM: bool = false;
    /// May equal calls differ? They are then never merged, and never computed again.
    const DETERMINISTIC: bool = true;
    /// May a call take long, or wait for another thread? (`RSNET_LONG` in `plugin.h`.)
    const LONG: bool = false;
    /// Refuses attributes that do not go together; tried on the defaults, too.
    const CHECK: Option<fn(&Infer<'_>) -> Result> = None;
    /// Makes what [`Call::state`] lends to every run of one node.
    const STATE: Option<fn(&Infer<'_>) -> Result<State>> = None;
    /// How its arrays may be distributed: texts like `"in:S(0) out:S(0)"`.
    const SIGNATURES: Option<fn(&Infer<'_>) -> Result<Vec<String>>> = None;

    /// Sets shape and dtype of every output. By default they are those of the first input.
    fn infer(ctx: &Infer<'_>) -> Result {
        for i in 0..ctx.n_outputs() {
            ctx.set_like(i, 0)?;
        }
        Ok(())
    }

    /// Computes the outputs of one call, unless [`Operator::KERNELS`] lists other functions.
    fn compute(_: &Call<'_>) -> Result {
        Err("the operator has no kernel of this kind".into())
    }

    /// Binds a gradient to every input that wants one.
    fn gradient(_: &Gradient<'_>) -> Result {
        Err("the operator has no gradient".into())
    }
}
