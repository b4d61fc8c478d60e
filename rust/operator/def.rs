//! The definition of an operator: all that the other rooms need of it.
//!
//! Every way of defining an operator (built in, Python subclass, attributes, user operator) fills
//! in one [`OpDef`], with the methods of `builder.rs`. Its fields are functions of the parsed
//! parameters.

use super::counted::CountedArg;
use super::gradient::{GradFn, Gradient};
use super::kernel::{Body, Kernel, OpState};
use super::listed::Listed;
use super::param::{Attrs, NoParam, ParamStruct, Schema};
use super::recent::Recent;
use super::request::{ResourceRequest, Resources};
use super::value::Value;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The operator of copies between devices, which the graph's pass for devices inserts.
pub const CROSS_DEVICE_COPY: &str = "_CrossDeviceCopy";

/// A number that depends on the parameters.
pub type CountFn = Arc<dyn Fn(&Attrs) -> usize + Send + Sync>;
/// Fills in unknown parts of inputs and outputs; `Ok(true)` when everything is known.
pub type InferShapeFn =
    Arc<dyn Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> + Send + Sync>;
/// The same for dtypes.
pub type InferTypeFn =
    Arc<dyn Fn(&Attrs, &mut [Option<DType>], &mut [Option<DType>]) -> Result<bool> + Send + Sync>;
/// Shapes and dtypes at once, where the shapes of all inputs are known. Fills in dtypes of inputs
/// that follow, and the outputs; while the dtype of an input is unknown, an error says that none
/// fits the known ones. Returns the dtypes that it demands of unknown inputs where it has the
/// choice, or nothing: other operators may have a say in them.
pub type InferBothFn = Arc<
    dyn Fn(
            &Attrs,
            (&[Shape], &mut [Option<DType>]),
            (&mut [Shape], &mut [Option<DType>]),
        ) -> Result<Vec<Option<DType>>>
        + Send
        + Sync,
>;
/// Shapes and dtypes of some arrays, one of each for every array.
pub type Facts<'a> = (&'a mut [Shape], &'a mut [Option<DType>]);
/// Infers what is known of the inputs and outputs of a graph that a node holds, by its number, in
/// both directions. Returns the dtypes that it demands of its inputs, as an [`InferBothFn`].
pub type InferBody<'a> = dyn FnMut(usize, Facts<'_>, Facts<'_>) -> Result<Vec<Option<DType>>> + 'a;
/// Infers shapes and dtypes of a node that holds graphs, in both directions, by inferring those of
/// its graphs. Returns what these demand of the inputs.
pub type InferThroughFn = Arc<
    dyn Fn(&Attrs, Facts<'_>, Facts<'_>, &mut InferBody<'_>) -> Result<Vec<Option<DType>>>
        + Send
        + Sync,
>;
/// Makes a state from parameters, device, and shapes and dtypes of the inputs.
pub type StateFn =
    Arc<dyn Fn(&Attrs, Context, &[Shape], &[DType]) -> Result<OpState> + Send + Sync>;
/// A predicate on the parameters of a call.
pub type FlagFn = Arc<dyn Fn(&Attrs) -> bool + Send + Sync>;
/// An error of the parameters, if there is one.
pub type CheckFn = Arc<dyn Fn(&Attrs) -> Result<()> + Send + Sync>;
type TypedFn =
    Arc<dyn Fn(&[Value], &[(String, Value)]) -> Result<Arc<dyn Any + Send + Sync>> + Send + Sync>;

/// An output that may take over the memory of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InplacePair {
    pub input: usize,
    pub output: usize,
    /// The output has the input's very bytes (identity, reshape): sharing is right even if the
    /// input is read elsewhere.
    pub identity: bool,
}

impl InplacePair {
    /// The output may overwrite the input.
    pub const fn new(input: usize, output: usize) -> Self {
        InplacePair { input, output, identity: false }
    }

    /// The output has the input's very bytes.
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

/// The parameter that says how many arrays each input argument has.
pub const ARG_COUNTS: &str = "arg_counts";

/// Work on at most this many elements (inputs and outputs together) takes some microseconds:
/// `tanh` of 2,048 and a wait take 5 to 9 us on the thread that asks for it, and 32 to 39 us as an
/// operation; `relu` 3 and 7.
pub const FEW_ELEMS: usize = 4096;

/// Which calls of an operator are operations of the engine of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alone {
    /// None has to be: the kernels share their work out among all threads.
    Never,
    /// In a graph, those on the host and more than [`FEW_ELEMS`] elements that could run at the
    /// same time as another such call: a kernel of a library is mostly a loop on one thread.
    BesideOthers,
    /// All, and none runs on the thread that asks for it: one may take long, or wait for another
    /// thread.
    Always,
}

impl Alone {
    /// What holds for a call on a device and this many elements.
    pub fn on(self, device: Context, elems: impl FnOnce() -> usize) -> Alone {
        match self {
            Alone::BesideOthers if !device.is_host() || elems() <= FEW_ELEMS => Alone::Never,
            alone => alone,
        }
    }
}

/// An operator.
#[derive(Clone)]
pub struct OpDef {
    pub name: String,
    pub aliases: Vec<String>,
    /// Formula, shapes, dtypes, errors, example, source.
    pub doc: String,
    /// The file name of the library that it comes from, for symbol files.
    pub library: Option<String>,
    pub input_docs: Vec<InputDoc>,
    pub schema: Arc<Schema>,
    pub(super) typed: TypedFn,
    /// True if the payload depends on the parameters alone, so that calls may share it.
    pub(super) shares: bool,
    /// Is the payload a struct of the core?
    pub(super) is_native: bool,
    pub(super) recent: Recent,
    /// How many graphs a node of this operator holds.
    pub bodies: usize,
    /// Name of the parameter that counts the inputs of a variadic operator.
    pub key_var_num_args: Option<String>,
    /// The input arguments, where [`ARG_COUNTS`] says how many arrays each has.
    pub arguments: Vec<CountedArg>,
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
    /// Where shapes and dtypes depend on each other: replaces the two above wherever both are
    /// needed.
    pub infer_both: Option<InferBothFn>,
    /// Of an operator whose nodes hold graphs: replaces the two above where shapes and dtypes
    /// inside of these graphs depend on each other.
    pub infer_through: Option<InferThroughFn>,
    pub inplace: Listed<InplacePair>,
    pub resources: Resources,
    pub gradient: Gradient,
    /// The gradient as operators that have gradients themselves, used where it is differentiated
    /// again. It may use the values that `gradient` reads.
    pub differentiable_gradient: Option<GradFn>,
    /// Makes the state of a node or recorded call.
    pub state: Option<StateFn>,
    /// Attributes set on variables that are inputs, such as `__init__`: (input name, key, text).
    pub variable_attrs: Listed<(String, String, String)>,
    pub kernels: Vec<Arc<Kernel>>,
    /// Returns true if the kernels of this call handle the request `Add` themselves. For kernels
    /// that declare it for all parameters, see [`Kernel::accumulates`].
    pub accumulates: Option<FlagFn>,
    /// Called before every run: an error that a function above could not return when it occurred,
    /// since functions that list something return no errors.
    pub deferred_error: Option<CheckFn>,
    /// True for a `_backward_*` operator, whose shapes and dtypes come from the forward node.
    pub is_backward: bool,
    /// Same inputs, same outputs, no effects: equal nodes may be merged and recomputed.
    pub deterministic: bool,
    /// True if recomputing it costs too much: `MXNET_BACKWARD_DO_MIRROR` keeps its outputs.
    pub expensive: bool,
    /// Which calls that are not callbacks are operations of the engine of their own.
    pub alone: Alone,
    /// True if a copy may run again although the operator modifies inputs. The copy writes to
    /// separate memory, so the outputs must not depend on what it writes there.
    pub rerun_safe: bool,
    /// True if composing a symbol creates variables for missing inputs.
    pub auto_variables: bool,
    /// True if the shape of an output depends on numbers of the inputs. The core knows what such an
    /// operator is called and what it takes; Python calls it on arrays whose numbers are there.
    pub shaped_by_numbers: bool,
    /// Whether an output continues from what the array given for it holds. Without such an array
    /// the call is an error.
    pub continues: Option<Arc<dyn Fn(&Attrs) -> bool + Send + Sync>>,
    /// See [`OpDef::elementwise`].
    pub(super) is_elementwise: bool,
    /// See [`OpDef::pointwise`].
    pub is_pointwise: bool,
}

impl fmt::Debug for OpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpDef({})", self.name)
    }
}

impl OpDef {
    /// An operator with the parameter struct `P`, one input `data` and one output `output`.
    pub fn new<P: ParamStruct>(name: &str) -> Self {
        let typed: TypedFn = Arc::new(|values, _| match P::from_values(values) {
            Some(p) => Ok(Arc::new(p) as Arc<dyn Any + Send + Sync>),
            None => Err(Error::parameter("a parameter value does not fit its type")),
        });
        OpDef { is_native: true, ..Self::dynamic(name, P::schema(), typed).shared() }
    }

    /// An operator without parameters.
    pub fn plain(name: &str) -> Self {
        Self::new::<NoParam>(name)
    }

    /// An operator whose schema is made at run time; `typed` makes the payload of [`Attrs::typed`]
    /// from the values in normal form and the parameters as given.
    pub fn dynamic(name: &str, schema: Schema, typed: TypedFn) -> Self {
        OpDef {
            name: name.to_owned(),
            aliases: Vec::new(),
            doc: String::new(),
            library: None,
            input_docs: Vec::new(),
            schema: Arc::new(schema),
            typed,
            shares: false,
            is_native: false,
            recent: Recent::default(),
            bodies: 0,
            key_var_num_args: None,
            arguments: Vec::new(),
            input_names: Listed::fixed(&["data".to_owned()]),
            output_names: Listed::fixed(&["output".to_owned()]),
            visible_outputs: None,
            mutates: Listed::fixed(&[]),
            ignores: Listed::fixed(&[]),
            infer_shape: None,
            infer_type: None,
            infer_both: None,
            infer_through: None,
            inplace: Listed::fixed(&[]),
            resources: Resources::fixed(&[]),
            gradient: Gradient::None,
            differentiable_gradient: None,
            state: None,
            variable_attrs: Listed::fixed(&[]),
            kernels: Vec::new(),
            accumulates: None,
            deferred_error: None,
            is_backward: name.starts_with("_backward"),
            deterministic: true,
            expensive: false,
            alone: Alone::Never,
            rerun_safe: false,
            auto_variables: true,
            shaped_by_numbers: false,
            continues: None,
            is_elementwise: false,
            is_pointwise: false,
        }
    }

    /// Returns true if [`Attrs::typed`] is a struct of the core (shared by a family of operators).
    pub fn is_native(&self) -> bool {
        self.is_native
    }

    /// Names of the inputs.
    pub fn inputs(&self, attrs: &Attrs) -> Vec<String> {
        self.input_names.to_vec(attrs)
    }

    /// Names of the outputs, hidden ones last.
    pub fn outputs(&self, attrs: &Attrs) -> Vec<String> {
        self.output_names.to_vec(attrs)
    }

    /// Number of inputs.
    pub fn num_inputs(&self, attrs: &Attrs) -> usize {
        self.input_names.with(attrs, <[String]>::len)
    }

    /// Number of outputs, hidden ones included.
    pub fn num_outputs(&self, attrs: &Attrs) -> usize {
        self.output_names.with(attrs, <[String]>::len)
    }

    /// Returns true if a kernel is outside of the core.
    pub fn is_callback(&self) -> bool {
        self.kernels.iter().any(|k| matches!(k.body, Body::Callback(_)))
    }

    /// Whether a call is an operation of its own, so that what does not need its results need not
    /// wait for it. `elems`: its inputs and outputs together.
    pub fn alone(&self, device: Context, elems: impl FnOnce() -> usize) -> Alone {
        if self.is_callback() { Alone::Always } else { self.alone.on(device, elems) }
    }

    /// Number of outputs that callers get.
    pub fn num_visible_outputs(&self, attrs: &Attrs) -> usize {
        self.visible_outputs.as_ref().map_or_else(|| self.num_outputs(attrs), |f| f(attrs))
    }

    /// Returns true if a call on inputs and outputs of these shapes needs random numbers.
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
}
