//! Kernels of an operator: their arguments, how one is chosen, and bodies that are callbacks.

use super::device::DeviceKernel;
use super::literal::parse_list;
use super::param::Attrs;
use super::request::{OpReq, RandomKey};
use super::value::{FieldType, Value};
use crate::context::{Context, DeviceType};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fixed_loop::FixedLoop;
use crate::kernels::kept::Keeper;
use crate::tensor::View;
use smallvec::SmallVec;
use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The state that an operator keeps from forward to backward of one node or recorded call.
pub type OpState = Arc<dyn Any + Send + Sync>;

/// The circumstances of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpContext {
    pub is_train: bool,
    /// True if gradients will be needed (recording, or an executor bound with gradients).
    pub need_grad: bool,
    pub device: Context,
    /// The stream of a device; `None` on the CPU.
    pub stream: Option<usize>,
    /// Meaningful for operators that requested random numbers.
    pub random: RandomKey,
}

/// Memory of the device that a kernel runs on, until its operation ends.
pub trait DeviceMemory: Sync {
    /// The address of `bytes` bytes of any contents, aligned to 64.
    fn take(&self, bytes: usize) -> Result<*mut u8>;
}

/// One call of a kernel. All views are row-major blocks of the inferred shapes.
///
/// A native kernel sees the requests `Null`, `Write` and `Inplace`, and `Add` only if it declared
/// that it accumulates. With `Null` the output is scratch (the view may have no memory if the
/// kernel declared that it skips unwanted outputs). With `Inplace` the output may be the same bytes
/// as the input of a declared pair; any other output overlaps no input.
pub struct Call<'a> {
    pub attrs: &'a Attrs,
    pub ctx: &'a OpContext,
    pub state: Option<&'a OpState>,
    /// Inputs in declared order, those that are mutated (auxiliary states) among them.
    pub inputs: &'a [View],
    pub req: &'a [OpReq],
    pub outputs: &'a [View],
    /// For temporary space; `None` on the CPU.
    pub memory: Option<&'a dyn DeviceMemory>,
    /// Of kernels that declare that they use it.
    pub around: &'a Around<'a>,
}

/// Called with a range of elements, on any thread.
pub type OnElements<'a> = &'a (dyn Fn(Range<usize>) + Sync);

/// What a kernel may use beside its operands: work to be done while the elements that it concerns
/// are in the cache, and what it has made of its weights in an earlier call.
#[derive(Clone, Copy, Default)]
pub struct Around<'a> {
    /// Makes elements of the first input, in its memory. The kernel requests each once, before it
    /// reads that element of any input, and for all of them before it writes the first output.
    pub before: Option<OnElements<'a>>,
    /// Uses elements of the first output, and may change them. The kernel reports each once, and
    /// then neither reads nor writes that element of any input or output; but see
    /// [`Kernel::reads_to_the_end`].
    pub after: Option<OnElements<'a>>,
    /// Keeps what the kernel makes of the input of [`Kernel::keeps`].
    pub keeper: Option<Keeper<'a>>,
}

impl Around<'_> {
    /// Nothing beside the operands.
    pub const NONE: &'static Around<'static> = &Around { before: None, after: None, keeper: None };

    pub fn before(&self, elements: Range<usize>) {
        if let Some(before) = self.before {
            before(elements);
        }
    }

    pub fn after(&self, elements: Range<usize>) {
        if let Some(after) = self.after {
            after(elements);
        }
    }
}

pub type NativeFn = Arc<dyn Fn(&Call<'_>) -> Result<()> + Send + Sync>;

/// The owned call of a callback, which may outlive the push that made it.
pub struct OwnedCall {
    pub attrs: Arc<Attrs>,
    pub ctx: OpContext,
    pub state: Option<OpState>,
    pub inputs: Arc<[View]>,
    /// Which inputs may be written to (auxiliary states).
    pub mutated: SmallVec<[usize; 2]>,
    pub req: SmallVec<[OpReq; 4]>,
    pub outputs: Arc<[View]>,
    /// Keeps the memory of the views alive.
    pub keep: Arc<dyn Any + Send + Sync>,
    /// To run the function under the operation's name.
    pub within: Arc<dyn Within>,
}

/// Runs a function as part of an operation, on whatever thread it is called: a wait inside that
/// would wait for the operation itself is then an error.
pub trait Within: Send + Sync {
    fn within(&self, f: &mut dyn FnMut());

    /// Has to be called inside the push before the operation outlives it: what errors say of the
    /// push is looked up now.
    fn leave_push(&self) {}

    /// True if another callback could run at the same time, so that this one should not run inside
    /// its push.
    fn has_peers(&self) -> bool {
        false
    }
}

/// Reports the end of a callback, from any thread; dropped unused it reports a failure.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A kernel outside of the core (a Python function). It sees `Add` only if its operator declared
/// that it accumulates; otherwise it writes to a temporary, which is then added to the output.
pub trait Callback: Send + Sync {
    /// Starts the call. It may run it at once on this thread, or hand it to another one.
    fn start(&self, call: OwnedCall, done: Done);

    /// True if its operands have to be memory of the host, wherever the arrays are.
    fn needs_host(&self) -> bool {
        false
    }
}

/// The body of a kernel.
#[derive(Clone)]
pub enum Body {
    Native(NativeFn),
    Callback(Arc<dyn Callback>),
    /// Functions of CUDA source, launched on a device.
    Device(Arc<DeviceKernel>),
}

/// A condition on a call under which a kernel applies, as data, so that it can be printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    Always,
    Device(DeviceType),
    /// The dtype of tensor `name` (an input or output) is one of these.
    DTypeOf(String, Vec<DType>),
    /// Parameter `name` compares so to this value (numbers by value, everything else by text).
    Attr(String, Compare, String),
    /// The number of axes of tensor `name` compares so to this one.
    RankOf(String, Compare, usize),
    And(Box<Match>, Box<Match>),
    Or(Box<Match>, Box<Match>),
    Not(Box<Match>),
}

/// A comparison inside a [`Match`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Compare {
    const ALL: [(Compare, &'static str); 6] = [
        (Compare::Eq, "=="),
        (Compare::Ne, "!="),
        (Compare::Lt, "<"),
        (Compare::Le, "<="),
        (Compare::Gt, ">"),
        (Compare::Ge, ">="),
    ];

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|c| c.1 == text).map(|c| c.0)
    }

    pub fn text(self) -> &'static str {
        Self::ALL.iter().find(|c| c.0 == self).map_or("", |c| c.1)
    }

    /// Unordered values (NaN) compare as different.
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Compare::Eq => order == Some(Ordering::Equal),
            Compare::Ne => order != Some(Ordering::Equal),
            Compare::Lt => order == Some(Ordering::Less),
            Compare::Le => order.is_some_and(Ordering::is_le),
            Compare::Gt => order == Some(Ordering::Greater),
            Compare::Ge => order.is_some_and(Ordering::is_ge),
        }
    }

    /// Does `value`, of type `ty`, compare so to `text`? Both in the precision of the type.
    fn holds_for(self, ty: &FieldType, value: &Value, text: &str) -> bool {
        let own = ty.in_its_precision(value);
        let order = match &*own {
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
                Value::number(text).map(|n| own.order(&ty.in_its_precision(&n)))
            }
            Value::List(_) => parse_list(text).map(|items| {
                let other = Value::List(items);
                own.equals(&ty.in_its_precision(&other)).then_some(Ordering::Equal)
            }),
            _ => None,
        };
        self.holds(order.unwrap_or_else(|| Some(value.to_string().as_str().cmp(text))))
    }
}

/// The facts a [`Match`] is tried on.
pub struct MatchFacts<'a> {
    pub device: DeviceType,
    pub attrs: &'a Attrs,
    /// Name, dtype and rank of every input and output.
    pub tensors: &'a [(&'a str, DType, usize)],
}

impl Match {
    pub fn holds(&self, facts: &MatchFacts<'_>) -> bool {
        let tensor = |name: &str| facts.tensors.iter().find(|t| t.0 == name);
        match self {
            Match::Always => true,
            Match::Device(d) => *d == facts.device,
            Match::DTypeOf(name, dtypes) => tensor(name).is_some_and(|t| dtypes.contains(&t.1)),
            Match::RankOf(name, how, rank) => {
                tensor(name).is_some_and(|t| how.holds(Some(t.2.cmp(rank))))
            }
            Match::Attr(name, how, text) => {
                facts.attrs.field(name).is_some_and(|(field, v)| how.holds_for(&field.ty, v, text))
            }
            Match::And(a, b) => a.holds(facts) && b.holds(facts),
            Match::Or(a, b) => a.holds(facts) || b.holds(facts),
            Match::Not(a) => !a.holds(facts),
        }
    }
}

impl Match {
    /// Calls `f` on every name of a tensor.
    pub fn for_each_tensor(&mut self, f: &impl Fn(&mut String)) {
        match self {
            Match::DTypeOf(name, _) | Match::RankOf(name, _, _) => f(name),
            Match::And(a, b) | Match::Or(a, b) => {
                a.for_each_tensor(f);
                b.for_each_tensor(f);
            }
            Match::Not(a) => a.for_each_tensor(f),
            Match::Always | Match::Device(_) | Match::Attr(..) => {}
        }
    }

    /// The condition with the truth of each of its parts: `(device == cpu [true] & ~always
    /// [true])`.
    pub fn explain(&self, facts: &MatchFacts<'_>) -> String {
        match self {
            Match::And(a, b) => format!("({} & {})", a.explain(facts), b.explain(facts)),
            Match::Or(a, b) => format!("({} | {})", a.explain(facts), b.explain(facts)),
            Match::Not(a) => format!("~{}", a.explain(facts)),
            leaf => format!("{leaf} [{}]", leaf.holds(facts)),
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Match::Always => f.write_str("always"),
            Match::Device(d) => write!(f, "device == {}", d.name()),
            Match::DTypeOf(n, d) => {
                let names: Vec<_> = d.iter().map(|d| d.name()).collect();
                write!(f, "dtype({n}) in {{{}}}", names.join(", "))
            }
            Match::Attr(n, how, v) => write!(f, "attr({n}) {} {v}", how.text()),
            Match::RankOf(n, how, r) => write!(f, "ndim({n}) {} {r}", how.text()),
            Match::And(a, b) => write!(f, "({a} & {b})"),
            Match::Or(a, b) => write!(f, "({a} | {b})"),
            Match::Not(a) => write!(f, "~{a}"),
        }
    }
}

/// One implementation of an operator.
#[derive(Clone)]
pub struct Kernel {
    pub name: String,
    pub matches: Match,
    pub priority: i32,
    pub body: Body,
    /// True if it handles `Add` itself.
    pub accumulates: bool,
    /// True if it does not touch outputs with request `Null`, so that they need no memory.
    pub skips_null: bool,
    /// Whether a call with these inputs serves [`Around::before`].
    pub requests_elements: Option<OfInputs>,
    /// Whether a call with these inputs, whose first output is wanted, serves [`Around::after`].
    pub reports_elements: Option<OfInputs>,
    /// True if a kernel that has reported elements goes on reading any elements of its inputs, as a
    /// product does.
    pub reads_to_the_end: bool,
    /// For calls that compute each element of the first output from the same of the first input.
    pub in_parts: Option<InParts>,
    /// An input of weights of which the kernel makes something that serves as long as they stay as
    /// they are.
    pub keeps: Option<usize>,
    /// For calls that are one loop over their elements.
    pub fixed: Option<FixedFn>,
}

/// The loop that a call is, if it is one, with requests to write. It serves as long as the views
/// of the call are valid.
pub type FixedFn = Arc<dyn Fn(&Call<'_>) -> Option<FixedLoop> + Send + Sync>;

/// How a kernel computes elements as they are asked for, in any order and on any thread.
#[derive(Clone, Copy)]
pub struct InParts {
    /// Whether it can in a call with these inputs, in training or not.
    pub when: fn(&Attrs, &[View], bool) -> bool,
    /// Writes all other outputs, and calls the function with what computes elements of the first.
    pub run: PartsFn,
}

/// The call, and what is done while its elements are computed.
pub type PartsFn = fn(&Call<'_>, &mut dyn FnMut(OnElements<'_>)) -> Result<()>;

/// A predicate on parameters and inputs of a call.
pub type OfInputs = fn(&Attrs, &[View]) -> bool;

impl Kernel {
    /// A kernel of normal priority that declares nothing of what it could.
    pub fn new(name: String, matches: Match, body: Body) -> Self {
        Kernel {
            name,
            matches,
            priority: 0,
            body,
            accumulates: false,
            skips_null: false,
            requests_elements: None,
            reports_elements: None,
            reads_to_the_end: false,
            in_parts: None,
            keeps: None,
            fixed: None,
        }
    }

    /// A kernel for the CPU that serves every dtype its operator infers.
    pub fn cpu(run: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        let body = Body::Native(Arc::new(run));
        Kernel::new("cpu".into(), Match::Device(DeviceType::Cpu), body)
    }

    /// Returns true if the kernel serves every call on `device`.
    #[inline]
    pub fn is_unconditional(&self, device: Context) -> bool {
        match self.matches {
            Match::Always => true,
            Match::Device(DeviceType::Cpu) => device.is_host(),
            _ => false,
        }
    }

    /// Declares that the kernel handles the request `Add` itself.
    pub fn accumulates(mut self) -> Self {
        self.accumulates = true;
        self
    }

    /// Declares that the kernel requests elements of its first input on calls of which this holds.
    pub fn requests_elements(mut self, when: OfInputs) -> Self {
        self.requests_elements = Some(when);
        self
    }

    /// Declares that the kernel reports elements of its first output on calls of which this holds.
    pub fn reports_elements(mut self, when: OfInputs) -> Self {
        self.reports_elements = Some(when);
        self
    }

    /// Declares that the kernel reads elements of its inputs after it has reported them.
    pub fn reads_to_the_end(mut self) -> Self {
        self.reads_to_the_end = true;
        self
    }

    /// Declares that the kernel uses [`Around::keeper`] for what it makes of an input.
    pub fn keeps_what_it_makes_of(mut self, input: usize) -> Self {
        self.keeps = Some(input);
        self
    }

    /// Declares how the kernel computes elements as they are asked for.
    pub fn in_parts(mut self, parts: InParts) -> Self {
        self.in_parts = Some(parts);
        self
    }

    /// Declares which calls are one loop.
    pub fn fixed_as(
        mut self,
        of_call: impl Fn(&Call<'_>) -> Option<FixedLoop> + Send + Sync + 'static,
    ) -> Self {
        self.fixed = Some(Arc::new(of_call));
        self
    }

    /// Declares that the kernel does not touch outputs whose request is `Null`.
    pub fn skips_null(mut self) -> Self {
        self.skips_null = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{NoParam, OpDef};

    #[test]
    fn conditions_hold_and_explain_themselves() {
        let attrs = OpDef::new::<NoParam>("probe").parse(&[]).expect("no parameters");
        let tensors = [("x", DType::F32, 2)];
        let facts = MatchFacts { device: DeviceType::Cpu, attrs: &attrs, tensors: &tensors };
        let rank = |how, n| Match::RankOf("x".into(), how, n);
        assert!(rank(Compare::Le, 2).holds(&facts) && !rank(Compare::Gt, 2).holds(&facts));
        let f64s = Match::DTypeOf("x".into(), vec![DType::F64]);
        let both = Match::And(Box::new(rank(Compare::Eq, 2)), Box::new(f64s.clone()));
        assert!(!both.holds(&facts));
        assert_eq!(both.explain(&facts), "(ndim(x) == 2 [true] & dtype(x) in {float64} [false])");
        assert!(Match::Not(Box::new(f64s)).holds(&facts));
        let holds =
            |how: Compare, value: &Value, text| how.holds_for(&FieldType::Double, value, text);
        assert!(holds(Compare::Lt, &Value::Float(0.5), "1"));
        let (big, half) = (Value::UInt(u64::MAX - 1), "9223372036854775808");
        assert!(holds(Compare::Ge, &big, half) && !holds(Compare::Lt, &big, half));
        assert!(holds(Compare::Lt, &Value::Int(9), half));
        assert!(holds(Compare::Gt, &Value::UInt(10_u64.pow(19)), half));
        assert!(holds(Compare::Eq, &Value::from("NCHW"), "NCHW"));
        let great = Value::Int((1 << 53) + 1);
        assert!(holds(Compare::Eq, &great, "9007199254740993"));
        assert!(!holds(Compare::Eq, &great, "9007199254740992"));
        assert!(holds(Compare::Gt, &great, "9007199254740992.0"));
        assert!(holds(Compare::Lt, &Value::Int(i64::MAX), "9223372036854775808"));
        assert!(holds(Compare::Ne, &Value::Int(1), "nan"));
        let names = Value::List(vec!["a, b".into(), "c".into()]);
        assert!(holds(Compare::Eq, &names, "['a, b', \"c\"]"));
        assert!(holds(Compare::Ne, &names, "('a', 'b', 'c')"));
        assert!(holds(Compare::Eq, &Value::from(&[1i64, 2][..]), "(1.0, 2)"));
        let tenth = Value::Float(0.1);
        assert!(Compare::Eq.holds_for(&FieldType::Float, &tenth, "0.100000001"));
        assert!(!holds(Compare::Eq, &tenth, "0.100000001"));
    }
}
