//! The definition of an operator: everything the rest of rsnet knows about it.
//!
//! All doors (built-in operators, Python subclasses, attributes, user operators) fill in one [`OpDef`].
//! Its fields are functions of the parsed parameters.

use super::gradient::{GradFn, Gradient};
use super::infer;
use super::kernel::{Body, Kernel, MatchFacts, NativeFn, OpState};
use super::param::{Attrs, NoParam, ParamStruct, Schema};
use super::request::{ResourceRequest, Resources};
use super::value::Value;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::shape::Shape;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

pub type CountFn = Arc<dyn Fn(&Attrs) -> usize + Send + Sync>;
/// Fills in unknown parts of inputs and outputs; `Ok(true)` when everything is known.
pub type InferShapeFn =
    Arc<dyn Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> + Send + Sync>;
pub type InferTypeFn =
    Arc<dyn Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool> + Send + Sync>;
/// Shapes and dtypes at once: the shapes of all inputs are known and the dtype of at least one. Fills in the
/// other dtypes and all of the outputs.
pub type InferBothFn = Arc<
    dyn Fn(
            &Attrs,
            (&[Shape], &mut [Option<DType>]),
            (&mut [Shape], &mut [Option<DType>]),
        ) -> Result<()>
        + Send
        + Sync,
>;
pub type StateFn =
    Arc<dyn Fn(&Attrs, Context, &[Shape], &[DType]) -> Result<OpState> + Send + Sync>;
/// A question about a call that its parameters answer.
pub type FlagFn = Arc<dyn Fn(&Attrs) -> bool + Send + Sync>;
pub type CheckFn = Arc<dyn Fn(&Attrs) -> Result<()> + Send + Sync>;
type TypedFn =
    Arc<dyn Fn(&[Value], &[(String, Value)]) -> Result<Arc<dyn Any + Send + Sync>> + Send + Sync>;

/// An output that may take over the memory of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InplacePair {
    pub input: usize,
    pub output: usize,
    /// The output has the input's very bytes (identity, reshape): sharing is right even if the input is
    /// read elsewhere.
    pub identity: bool,
}

impl InplacePair {
    pub const fn new(input: usize, output: usize) -> Self {
        InplacePair { input, output, identity: false }
    }

    pub const fn identity(input: usize, output: usize) -> Self {
        InplacePair { input, output, identity: true }
    }
}

/// A list that is the same for all parameters, or follows from them.
#[derive(Clone)]
pub enum Listed<T> {
    Fixed(Arc<[T]>),
    By(Arc<dyn Fn(&Attrs) -> Vec<T> + Send + Sync>),
}

impl<T: Clone> Listed<T> {
    pub fn fixed(items: &[T]) -> Self {
        Listed::Fixed(items.into())
    }

    pub fn by(f: impl Fn(&Attrs) -> Vec<T> + Send + Sync + 'static) -> Self {
        Listed::By(Arc::new(f))
    }

    /// Calls `f` with the list; a fixed one is not copied.
    #[inline]
    pub fn with<R>(&self, attrs: &Attrs, f: impl FnOnce(&[T]) -> R) -> R {
        match self {
            Listed::Fixed(items) => f(items),
            Listed::By(make) => f(&make(attrs)),
        }
    }

    pub fn to_vec(&self, attrs: &Attrs) -> Vec<T> {
        self.with(attrs, <[T]>::to_vec)
    }

    /// Is the list empty whatever the parameters are?
    pub fn is_never(&self) -> bool {
        matches!(self, Listed::Fixed(items) if items.is_empty())
    }
}

/// Documentation of one input.
#[derive(Clone, Debug)]
pub struct InputDoc {
    pub name: String,
    /// `NDArray-or-Symbol`, `NDArray-or-Symbol[]`.
    pub ty: String,
    pub doc: String,
}

/// An operator.
#[derive(Clone)]
pub struct OpDef {
    pub name: String,
    pub aliases: Vec<String>,
    /// Formula, shapes, dtypes, errors, example, source.
    pub doc: String,
    pub input_docs: Vec<InputDoc>,
    pub schema: Arc<Schema>,
    typed: TypedFn,
    /// Does the payload depend on the parameters alone, so that calls may share it?
    shares: bool,
    recent: Recent,
    /// Name of the parameter that counts the inputs of a variadic operator.
    pub key_var_num_args: Option<String>,
    /// Names of all inputs; mutated ones (auxiliary states) are among them.
    pub input_names: Listed<String>,
    /// Names of all outputs, hidden ones last.
    pub output_names: Listed<String>,
    pub visible_outputs: Option<CountFn>,
    /// Inputs that the operator modifies: its auxiliary states.
    pub mutates: Listed<usize>,
    /// Inputs of which only shape and dtype matter.
    pub ignores: Listed<usize>,
    pub infer_shape: Option<InferShapeFn>,
    pub infer_type: Option<InferTypeFn>,
    /// Where shapes and dtypes follow from each other: asked instead of the two above wherever both are wanted.
    pub infer_both: Option<InferBothFn>,
    pub inplace: Listed<InplacePair>,
    pub resources: Resources,
    pub gradient: Gradient,
    /// The gradient made of operators that have gradients themselves, for when it is differentiated again. It
    /// may use the values that `gradient` reads.
    pub composed: Option<GradFn>,
    /// Makes the state of a node or recorded call.
    pub state: Option<StateFn>,
    /// Attributes set on variables that are inputs, such as `__init__`: (input name, key, text).
    pub variable_attrs: Listed<(String, String, String)>,
    pub kernels: Vec<Arc<Kernel>>,
    /// Do the kernels of this call handle the request `Add` themselves? Asked for kernels that do not declare it
    /// whatever the parameters are ([`Kernel::accumulates`]).
    pub accumulates: Option<FlagFn>,
    /// Asked before every run: an error that one of the functions above could not return (those that list something
    /// have no other way).
    pub fault: Option<CheckFn>,
    /// Is it a `_backward_*` operator? Its shapes and dtypes come from the forward node.
    pub is_backward: bool,
    /// Same inputs, same outputs, no effects: equal nodes may be merged and recomputed.
    pub deterministic: bool,
    /// Is computing it again dear? Then `MXNET_BACKWARD_DO_MIRROR` leaves it alone.
    pub dear: bool,
    /// May a copy run again although the operator modifies inputs? The copy gets memory of its own in their
    /// place, so this asks that the outputs do not depend on what it writes there.
    pub spares_states: bool,
    /// May the face create the missing inputs of a composed symbol?
    pub auto_variables: bool,
    /// See [`OpDef::elementwise`].
    is_elementwise: bool,
}

/// What came of the parameters of the last calls: programs repeat themselves.
#[derive(Default)]
struct Recent {
    /// Of a call without parameters.
    plain: OnceLock<Arc<Attrs>>,
    last: Lock<VecDeque<Arc<Attrs>>>,
}

impl Recent {
    const KEPT: usize = 4;

    fn find(&self, given: &[(&str, Value)]) -> Option<Arc<Attrs>> {
        let same = |attrs: &&Arc<Attrs>| {
            let old = attrs.given();
            old.len() == given.len()
                && old.iter().zip(given).all(|(a, b)| a.0 == b.0 && a.1.is_identical(&b.1))
        };
        self.last.lock().iter().find(same).cloned()
    }

    fn keep(&self, attrs: Arc<Attrs>) {
        let mut last = self.last.lock();
        last.truncate(Self::KEPT - 1);
        last.push_front(attrs);
    }
}

/// A definition made from another one may parse otherwise.
impl Clone for Recent {
    fn clone(&self) -> Self {
        Recent::default()
    }
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpDef({})", self.name)
    }
}

/// The most inputs of an operator that takes any number.
const MOST_INPUTS: i64 = 65_535;

impl OpDef {
    /// An operator with the parameter struct `P`, one input `data` and one output `output`.
    pub fn new<P: ParamStruct>(name: &str) -> Self {
        let typed: TypedFn = Arc::new(|values, _| match P::from_values(values) {
            Some(p) => Ok(Arc::new(p) as Arc<dyn Any + Send + Sync>),
            None => Err(Error::parameter("a parameter value does not fit its type")),
        });
        OpDef { shares: true, ..Self::dynamic(name, P::schema(), typed) }
    }

    /// An operator without parameters.
    pub fn plain(name: &str) -> Self {
        Self::new::<NoParam>(name)
    }

    /// An operator whose schema is made at run time; `typed` makes the payload of [`Attrs::typed`] from
    /// the values in normal form and the parameters as given.
    pub fn dynamic(name: &str, schema: Schema, typed: TypedFn) -> Self {
        OpDef {
            name: name.to_owned(),
            aliases: Vec::new(),
            doc: String::new(),
            input_docs: Vec::new(),
            schema: Arc::new(schema),
            typed,
            shares: false,
            recent: Recent::default(),
            key_var_num_args: None,
            input_names: Listed::fixed(&["data".to_owned()]),
            output_names: Listed::fixed(&["output".to_owned()]),
            visible_outputs: None,
            mutates: Listed::fixed(&[]),
            ignores: Listed::fixed(&[]),
            infer_shape: None,
            infer_type: None,
            infer_both: None,
            inplace: Listed::fixed(&[]),
            resources: Resources::fixed(&[]),
            gradient: Gradient::None,
            composed: None,
            state: None,
            variable_attrs: Listed::fixed(&[]),
            kernels: Vec::new(),
            accumulates: None,
            fault: None,
            is_backward: name.starts_with("_backward"),
            deterministic: true,
            dear: false,
            spares_states: false,
            auto_variables: true,
            is_elementwise: false,
        }
    }

    /// Parses parameters; the error names the operator.
    pub fn parse(&self, given: &[(&str, Value)]) -> Result<Attrs> {
        let fail = |e: Error| {
            let mut call = format!("{}, in operator {}(name=\"\"", e.message(), self.name);
            for (k, v) in given {
                let _ = write!(call, ", {k}=\"{v}\"");
            }
            Error::new(e.kind(), call + ")").in_operator(&self.name)
        };
        let lenient: Vec<(&str, Value)>;
        let relevant = if self.schema.fields.is_empty() {
            lenient = Vec::new(); // operators without parameters ignore unknown keywords
            &lenient
        } else {
            given
        };
        let values = self.schema.parse(relevant).map_err(fail)?;
        let kept: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let typed = (self.typed)(&values, &kept).map_err(|e| e.in_operator(&self.name))?;
        self.check_count(&values).map_err(fail)?;
        Ok(Attrs::new(self.schema.clone(), values, typed, kept))
    }

    /// As [`OpDef::parse`]; calls with the same parameters share what came of them.
    pub fn parse_shared(&self, given: &[(&str, Value)]) -> Result<Arc<Attrs>> {
        if given.is_empty() {
            if let Some(plain) = self.recent.plain.get() {
                return Ok(plain.clone());
            }
            let plain = Arc::new(self.parse(given)?);
            return Ok(self.recent.plain.get_or_init(|| plain).clone());
        }
        if !self.shares {
            return Ok(Arc::new(self.parse(given)?));
        }
        if let Some(known) = self.recent.find(given) {
            return Ok(known);
        }
        let fresh = Arc::new(self.parse(given)?);
        self.recent.keep(fresh.clone());
        Ok(fresh)
    }

    /// Is [`Attrs::typed`] a struct of the core (which the operators of a family share)?
    pub fn is_native(&self) -> bool {
        self.shares
    }

    pub fn inputs(&self, attrs: &Attrs) -> Vec<String> {
        self.input_names.to_vec(attrs)
    }

    pub fn outputs(&self, attrs: &Attrs) -> Vec<String> {
        self.output_names.to_vec(attrs)
    }

    pub fn num_inputs(&self, attrs: &Attrs) -> usize {
        self.input_names.with(attrs, <[String]>::len)
    }

    pub fn num_outputs(&self, attrs: &Attrs) -> usize {
        self.output_names.with(attrs, <[String]>::len)
    }

    pub fn num_visible_outputs(&self, attrs: &Attrs) -> usize {
        self.visible_outputs.as_ref().map_or_else(|| self.num_outputs(attrs), |f| f(attrs))
    }

    /// Does a call on inputs and outputs of these shapes need random numbers?
    pub fn wants_random(
        &self,
        attrs: &Attrs,
        shapes: impl FnOnce() -> (Vec<Shape>, Vec<Shape>),
    ) -> Result<bool> {
        let wanted = |resources: &[ResourceRequest]| resources.contains(&ResourceRequest::Random);
        match &self.resources {
            Resources::Fixed(resources) => Ok(wanted(resources)),
            Resources::By(_) => {
                let (inputs, outputs) = shapes();
                Ok(wanted(&self.resources.of(attrs, &inputs, &outputs)?))
            }
        }
    }

    /// The kernel of an element-wise operator on `n_inputs` arrays in host memory, if there is no choice.
    #[inline]
    pub fn elementwise_kernel(&self, n_inputs: usize) -> Option<&NativeFn> {
        let [kernel] = self.kernels.as_slice() else { return None };
        let fits = self.is_elementwise
            && matches!(&self.input_names, Listed::Fixed(names) if names.len() == n_inputs)
            && kernel.is_unconditional(Context::default());
        match &kernel.body {
            Body::Native(native) if fits => Some(native),
            _ => None,
        }
    }

    /// The kernel for these facts: of all that match, the one at the highest priority. None or several
    /// there is an error that lists every kernel's condition with its truth.
    pub fn choose_kernel(&self, facts: &MatchFacts<'_>) -> Result<&Arc<Kernel>> {
        let matching: Vec<_> = self.kernels.iter().filter(|k| k.matches.holds(facts)).collect();
        let best = matching.iter().map(|k| k.priority).max();
        let mut at_best = matching.iter().filter(|k| Some(k.priority) == best);
        match (at_best.next(), at_best.next()) {
            (Some(kernel), None) => Ok(kernel),
            (first, _) => {
                let mut text = match first {
                    None => "no kernel matches".to_owned(),
                    Some(_) => "several kernels match at the highest priority".to_owned(),
                };
                let _ = write!(text, " on {} for", facts.device.name());
                for (name, dtype, rank) in facts.tensors {
                    let _ = write!(text, " {name}: {dtype} of {rank} axes;");
                }
                for line in self.explain_kernels(facts) {
                    let _ = write!(text, "\n  {line}");
                }
                Err(Error::not_implemented(text).in_operator(&self.name))
            }
        }
    }

    /// For every kernel whether it would run, and why.
    pub fn explain_kernels(&self, facts: &MatchFacts<'_>) -> Vec<String> {
        let line = |k: &Arc<Kernel>| {
            let verdict = if k.matches.holds(facts) { "matches" } else { "does not match" };
            let why = k.matches.explain(facts);
            format!("kernel '{}' at priority {} {verdict}: {why}", k.name, k.priority)
        };
        self.kernels.iter().map(line).collect()
    }

    /// A count of inputs that nobody means would make as many names.
    fn check_count(&self, values: &[Value]) -> Result<()> {
        let Some(count) = self.key_var_num_args.as_deref() else { return Ok(()) };
        let at = self.schema.fields.iter().position(|f| f.name == count);
        match at.and_then(|i| values.get(i)) {
            Some(Value::Int(n)) if *n > MOST_INPUTS => Err(Error::parameter(format!(
                "value {n} for Parameter {count} should be smaller equal to {MOST_INPUTS}"
            ))),
            _ => Ok(()),
        }
    }

    // Builder methods, in the order in which a definition is usually written.

    pub fn doc(mut self, doc: &str) -> Self {
        self.doc = doc.trim().to_owned();
        self
    }

    pub fn aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases.extend(aliases.iter().map(|a| (*a).to_owned()));
        self
    }

    /// Fixed inputs with their documentation.
    pub fn inputs_are(mut self, inputs: &[(&str, &str)]) -> Self {
        let names: Vec<String> = inputs.iter().map(|i| i.0.to_owned()).collect();
        self.input_names = Listed::fixed(&names);
        self.input_docs(inputs)
    }

    /// Documentation of the inputs, whose names are given otherwise.
    pub fn input_docs(mut self, inputs: &[(&str, &str)]) -> Self {
        self.input_docs = inputs
            .iter()
            .map(|(name, doc)| InputDoc {
                name: (*name).to_owned(),
                ty: "NDArray-or-Symbol".to_owned(),
                doc: (*doc).to_owned(),
            })
            .collect();
        self
    }

    /// Inputs that depend on the parameters; call after [`OpDef::inputs_are`], which documents all.
    pub fn input_names_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.input_names = Listed::by(f);
        self
    }

    /// Any number of inputs `arg0`, `arg1` ... counted by the parameter `count`.
    pub fn variadic(mut self, count: &str, doc: &str) -> Self {
        self.key_var_num_args = Some(count.to_owned());
        self.input_docs = vec![InputDoc {
            name: "data".to_owned(),
            ty: "NDArray-or-Symbol[]".to_owned(),
            doc: doc.to_owned(),
        }];
        let count = count.to_owned();
        self.input_names = Listed::by(move |attrs| {
            let n = match attrs.value(&count) {
                Some(Value::Int(n)) => *n,
                _ => 0,
            };
            (0..n).map(|i| format!("arg{i}")).collect()
        });
        self
    }

    pub fn outputs_are(mut self, outputs: &[&str]) -> Self {
        let names: Vec<String> = outputs.iter().map(|o| (*o).to_owned()).collect();
        self.output_names = Listed::fixed(&names);
        self
    }

    pub fn output_names_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.output_names = Listed::by(f);
        self
    }

    pub fn visible(mut self, f: impl Fn(&Attrs) -> usize + Send + Sync + 'static) -> Self {
        self.visible_outputs = Some(Arc::new(f));
        self
    }

    pub fn mutates(mut self, inputs: &[usize]) -> Self {
        self.mutates = Listed::fixed(inputs);
        self
    }

    pub fn ignores(mut self, inputs: &[usize]) -> Self {
        self.ignores = Listed::fixed(inputs);
        self
    }

    pub fn ignores_by(mut self, f: impl Fn(&Attrs) -> Vec<usize> + Send + Sync + 'static) -> Self {
        self.ignores = Listed::by(f);
        self
    }

    /// All arrays have one shape and one dtype, an element of the one output is calculated from those at its
    /// place, and a call has no other effects: how the elements are arranged does not matter.
    pub fn elementwise(mut self) -> Self {
        self.is_elementwise = true;
        self.infer_shape(infer::elementwise_shape).infer_type(infer::same_type)
    }

    pub fn infer_shape(
        mut self,
        f: impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> + Send + Sync + 'static,
    ) -> Self {
        self.infer_shape = Some(Arc::new(f));
        self
    }

    pub fn infer_type(
        mut self,
        f: impl Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.infer_type = Some(Arc::new(f));
        self
    }

    pub fn inplace(mut self, pairs: &[InplacePair]) -> Self {
        self.inplace = Listed::fixed(pairs);
        self
    }

    pub fn inplace_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<InplacePair> + Send + Sync + 'static,
    ) -> Self {
        self.inplace = Listed::by(f);
        self
    }

    pub fn resources(mut self, r: &'static [ResourceRequest]) -> Self {
        self.resources = Resources::fixed(r);
        if r.contains(&ResourceRequest::Random) {
            self.deterministic = false;
        }
        self
    }

    pub fn gradient(mut self, gradient: Gradient) -> Self {
        self.gradient = gradient;
        self
    }

    pub fn state(
        mut self,
        f: impl Fn(&Attrs, Context, &[Shape], &[DType]) -> Result<OpState> + Send + Sync + 'static,
    ) -> Self {
        self.state = Some(Arc::new(f));
        self
    }

    pub fn variable_attr(mut self, input: &str, key: &str, text: &str) -> Self {
        let mut all = match &self.variable_attrs {
            Listed::Fixed(known) => known.to_vec(),
            Listed::By(_) => Vec::new(),
        };
        all.push((input.to_owned(), key.to_owned(), text.to_owned()));
        self.variable_attrs = Listed::fixed(&all);
        self
    }

    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernels.push(Arc::new(kernel));
        self
    }

    pub fn not_deterministic(mut self) -> Self {
        self.deterministic = false;
        self
    }

    pub fn dear(mut self) -> Self {
        self.dear = true;
        self
    }

    pub fn spares_states(mut self) -> Self {
        self.spares_states = true;
        self
    }

    pub fn no_auto_variables(mut self) -> Self {
        self.auto_variables = false;
        self
    }
}
