//! The definition of an operator: everything the rest of rsnet knows about it.
//!
//! All doors (built-in operators, Python subclasses, attributes, user operators) fill in one [`OpDef`].
//! Its fields are functions of the parsed parameters.

use super::gradient::Gradient;
use super::kernel::{Kernel, MatchFacts, OpState};
use super::param::{Attrs, NoParam, ParamStruct, Schema};
use super::request::ResourceRequest;
use super::value::Value;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use std::any::Any;
use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

pub type NamesFn = Arc<dyn Fn(&Attrs) -> Vec<String> + Send + Sync>;
pub type CountFn = Arc<dyn Fn(&Attrs) -> usize + Send + Sync>;
pub type IndicesFn = Arc<dyn Fn(&Attrs) -> Vec<usize> + Send + Sync>;
pub type InplaceFn = Arc<dyn Fn(&Attrs) -> Vec<InplacePair> + Send + Sync>;
pub type ResourcesFn = Arc<dyn Fn(&Attrs) -> Vec<ResourceRequest> + Send + Sync>;
/// Fills in unknown parts of inputs and outputs; `Ok(true)` when everything is known.
pub type InferShapeFn =
    Arc<dyn Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> + Send + Sync>;
pub type InferTypeFn =
    Arc<dyn Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool> + Send + Sync>;
pub type StateFn =
    Arc<dyn Fn(&Attrs, Context, &[Shape], &[DType]) -> Result<OpState> + Send + Sync>;
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
    /// Name of the parameter that counts the inputs of a variadic operator.
    pub key_var_num_args: Option<String>,
    /// Names of all inputs; mutated ones (auxiliary states) are among them.
    pub input_names: NamesFn,
    /// Names of all outputs, hidden ones last.
    pub output_names: NamesFn,
    pub visible_outputs: Option<CountFn>,
    /// Inputs that the operator modifies: its auxiliary states.
    pub mutates: Option<IndicesFn>,
    /// Inputs of which only shape and dtype matter.
    pub ignores: Option<IndicesFn>,
    pub infer_shape: Option<InferShapeFn>,
    pub infer_type: Option<InferTypeFn>,
    pub inplace: Option<InplaceFn>,
    pub resources: Option<ResourcesFn>,
    pub gradient: Gradient,
    /// Makes the state of a node or recorded call.
    pub state: Option<StateFn>,
    /// Attributes set on variables made for missing inputs, such as `__init__`: (input name, key, text).
    pub variable_attrs: Vec<(String, String, String)>,
    pub kernels: Vec<Arc<Kernel>>,
    /// Is it a `_backward_*` operator? Its shapes and dtypes come from the forward node.
    pub is_backward: bool,
    /// Same inputs, same outputs, no effects: equal nodes may be merged and recomputed.
    pub deterministic: bool,
    /// May the face create the missing inputs of a composed symbol?
    pub auto_variables: bool,
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpDef({})", self.name)
    }
}

/// `data` alone.
fn data_only() -> NamesFn {
    Arc::new(|_| vec!["data".to_owned()])
}

impl OpDef {
    /// An operator with the parameter struct `P`, one input `data` and one output `output`.
    pub fn new<P: ParamStruct>(name: &str) -> Self {
        let typed: TypedFn = Arc::new(|values, _| match P::from_values(values) {
            Some(p) => Ok(Arc::new(p) as Arc<dyn Any + Send + Sync>),
            None => Err(Error::parameter("a parameter value does not fit its type")),
        });
        Self::dynamic(name, P::schema(), typed)
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
            key_var_num_args: None,
            input_names: data_only(),
            output_names: Arc::new(|_| vec!["output".to_owned()]),
            visible_outputs: None,
            mutates: None,
            ignores: None,
            infer_shape: None,
            infer_type: None,
            inplace: None,
            resources: None,
            gradient: Gradient::None,
            state: None,
            variable_attrs: Vec::new(),
            kernels: Vec::new(),
            is_backward: name.starts_with("_backward"),
            deterministic: true,
            auto_variables: true,
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
        Ok(Attrs::new(self.schema.clone(), values, typed, kept))
    }

    pub fn inputs(&self, attrs: &Attrs) -> Vec<String> {
        (self.input_names)(attrs)
    }

    pub fn outputs(&self, attrs: &Attrs) -> Vec<String> {
        (self.output_names)(attrs)
    }

    pub fn num_inputs(&self, attrs: &Attrs) -> usize {
        self.inputs(attrs).len()
    }

    pub fn num_outputs(&self, attrs: &Attrs) -> usize {
        self.outputs(attrs).len()
    }

    pub fn num_visible_outputs(&self, attrs: &Attrs) -> usize {
        self.visible_outputs.as_ref().map_or_else(|| self.num_outputs(attrs), |f| f(attrs))
    }

    pub fn mutated_inputs(&self, attrs: &Attrs) -> Vec<usize> {
        self.mutates.as_ref().map_or_else(Vec::new, |f| f(attrs))
    }

    pub fn inplace_pairs(&self, attrs: &Attrs) -> Vec<InplacePair> {
        self.inplace.as_ref().map_or_else(Vec::new, |f| f(attrs))
    }

    pub fn resource_requests(&self, attrs: &Attrs) -> Vec<ResourceRequest> {
        self.resources.as_ref().map_or_else(Vec::new, |f| f(attrs))
    }

    pub fn wants_random(&self, attrs: &Attrs) -> bool {
        self.resource_requests(attrs).contains(&ResourceRequest::Random)
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
                for k in &self.kernels {
                    let (truth, why) = (k.matches.holds(facts), k.matches.explain(facts));
                    let _ = write!(
                        text,
                        "\n  kernel '{}' priority {}: {truth}: {why}",
                        k.name, k.priority
                    );
                }
                Err(Error::not_implemented(text).in_operator(&self.name))
            }
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
        self.input_docs = inputs
            .iter()
            .map(|(name, doc)| InputDoc {
                name: (*name).to_owned(),
                ty: "NDArray-or-Symbol".to_owned(),
                doc: (*doc).to_owned(),
            })
            .collect();
        self.input_names = Arc::new(move |_| names.clone());
        self
    }

    /// Inputs that depend on the parameters; call after [`OpDef::inputs_are`], which documents all.
    pub fn input_names_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.input_names = Arc::new(f);
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
        self.input_names = Arc::new(move |attrs| {
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
        self.output_names = Arc::new(move |_| names.clone());
        self
    }

    pub fn output_names_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.output_names = Arc::new(f);
        self
    }

    pub fn visible(mut self, f: impl Fn(&Attrs) -> usize + Send + Sync + 'static) -> Self {
        self.visible_outputs = Some(Arc::new(f));
        self
    }

    pub fn mutates(mut self, f: impl Fn(&Attrs) -> Vec<usize> + Send + Sync + 'static) -> Self {
        self.mutates = Some(Arc::new(f));
        self
    }

    pub fn ignores(mut self, f: impl Fn(&Attrs) -> Vec<usize> + Send + Sync + 'static) -> Self {
        self.ignores = Some(Arc::new(f));
        self
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

    pub fn inplace(
        mut self,
        f: impl Fn(&Attrs) -> Vec<InplacePair> + Send + Sync + 'static,
    ) -> Self {
        self.inplace = Some(Arc::new(f));
        self
    }

    pub fn resources(mut self, r: &'static [ResourceRequest]) -> Self {
        self.resources = Some(Arc::new(move |_| r.to_vec()));
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
        self.variable_attrs.push((input.to_owned(), key.to_owned(), text.to_owned()));
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

    pub fn no_auto_variables(mut self) -> Self {
        self.auto_variables = false;
        self
    }
}
