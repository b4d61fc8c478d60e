//! Builder methods of [`OpDef`], in the order in which a definition is usually written.

use super::def::{Facts, InferBody, InplacePair, InputDoc, OpDef};
use super::gradient::Gradient;
use super::infer;
use super::kernel::{Kernel, OpState};
use super::listed::Listed;
use super::param::Attrs;
use super::request::{ResourceRequest, Resources};
use super::value::Value;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Shape;
use std::sync::Arc;

impl OpDef {
    /// Sets the documentation; the first line is the summary.
    pub fn doc(mut self, doc: &str) -> Self {
        self.doc = doc.trim().to_owned();
        self
    }

    /// The payload of the parameters follows from their values alone: equal calls share it.
    pub fn shared(mut self) -> Self {
        self.shares = true;
        self
    }

    /// Adds names under which the operator is registered too.
    pub fn aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases.extend(aliases.iter().map(|a| (*a).to_owned()));
        self
    }

    /// Every node holds `count` graphs, which its inputs feed.
    pub fn holds_graphs(mut self, count: usize) -> Self {
        self.bodies = count;
        self
    }

    /// Fixed inputs with their documentation. Kernels that there are already, under other names of
    /// as many inputs, read the new ones.
    pub fn inputs_are(mut self, inputs: &[(&str, &str)]) -> Self {
        let names: Vec<String> = inputs.iter().map(|i| i.0.to_owned()).collect();
        let known: Vec<String> = self.input_docs.iter().map(|i| i.name.clone()).collect();
        if known != names && known.len() == names.len() {
            for kernel in &mut self.kernels {
                Arc::make_mut(kernel).rename_tensors(&known, &names);
            }
        }
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

    /// Any number of inputs, whose names follow from the parameters. (Unlike with
    /// [`OpDef::variadic`], no parameter is filled in from their number.)
    pub fn many_inputs(
        mut self,
        doc: &str,
        names: impl Fn(&Attrs) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.input_docs = vec![InputDoc {
            name: "data".to_owned(),
            ty: "NDArray-or-Symbol[]".to_owned(),
            doc: doc.to_owned(),
        }];
        self.input_names_by(names)
    }

    /// Sets the names of the outputs, for all parameters.
    pub fn outputs_are(mut self, outputs: &[&str]) -> Self {
        let names: Vec<String> = outputs.iter().map(|o| (*o).to_owned()).collect();
        self.output_names = Listed::fixed(&names);
        self
    }

    /// Outputs that depend on the parameters, hidden ones last.
    pub fn output_names_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.output_names = Listed::by(f);
        self
    }

    /// The number of outputs that callers get; the others are for the gradient. All by default.
    pub fn visible(mut self, f: impl Fn(&Attrs) -> usize + Send + Sync + 'static) -> Self {
        self.visible_outputs = Some(Arc::new(f));
        self
    }

    /// Inputs, by number, that the operator modifies: its auxiliary states.
    pub fn mutates(mut self, inputs: &[usize]) -> Self {
        self.mutates = Listed::fixed(inputs);
        self
    }

    /// As [`OpDef::mutates`], depending on the parameters.
    pub fn mutates_by(mut self, f: impl Fn(&Attrs) -> Vec<usize> + Send + Sync + 'static) -> Self {
        self.mutates = Listed::by(f);
        self
    }

    /// Outputs `output0`, `output1` ..., or `output` if there is only one, as many as `count` says.
    pub fn numbered_outputs(self, count: impl Fn(&Attrs) -> usize + Send + Sync + 'static) -> Self {
        self.output_names_by(move |attrs| match count(attrs) {
            1 => vec!["output".to_owned()],
            n => (0..n).map(|i| format!("output{i}")).collect(),
        })
    }

    /// Inputs, by number, of which only shape and dtype matter: they need not be computed.
    pub fn ignores(mut self, inputs: &[usize]) -> Self {
        self.ignores = Listed::fixed(inputs);
        self
    }

    /// As [`OpDef::ignores`], depending on the parameters.
    pub fn ignores_by(mut self, f: impl Fn(&Attrs) -> Vec<usize> + Send + Sync + 'static) -> Self {
        self.ignores = Listed::by(f);
        self
    }

    /// Input and output have different dtypes: no output takes the memory of an input.
    pub fn of_two_dtypes(mut self) -> Self {
        self.is_elementwise = false;
        self.inplace(&[])
    }

    /// All arrays have one shape and one dtype, an element of the one output is calculated from
    /// those at its place, and a call has no other effects: how the elements are arranged does not
    /// matter.
    pub fn elementwise(mut self) -> Self {
        self.is_elementwise = true;
        self.infer_shape(infer::elementwise_shape).infer_type(infer::same_type).pointwise()
    }

    /// On arrays of equally many elements, an element of an output is calculated from those at its
    /// place, and a call has no other effects: it may be one of several on parts of the arrays.
    /// Where arrays differ in size, nothing is said.
    pub fn pointwise(mut self) -> Self {
        self.is_pointwise = true;
        self
    }

    /// Sets shape inference: fills in unknown shapes of inputs and outputs, in both directions, and
    /// returns whether all are known.
    pub fn infer_shape(
        mut self,
        f: impl Fn(&Attrs, &mut [Shape], &mut [Shape]) -> Result<bool> + Send + Sync + 'static,
    ) -> Self {
        self.infer_shape = Some(Arc::new(f));
        self
    }

    /// Sets dtype inference, as [`OpDef::infer_shape`]. Without it all dtypes are the same.
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

    /// Sets inference through the graphs of a node; see [`OpDef::infer_through`].
    pub fn infer_through(
        mut self,
        f: impl Fn(&Attrs, Facts<'_>, Facts<'_>, &mut InferBody<'_>) -> Result<Vec<Option<DType>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.infer_through = Some(Arc::new(f));
        self
    }

    /// Pairs of an input and an output that may share memory.
    pub fn inplace(mut self, pairs: &[InplacePair]) -> Self {
        self.inplace = Listed::fixed(pairs);
        self
    }

    /// As [`OpDef::inplace`], depending on the parameters.
    pub fn inplace_by(
        mut self,
        f: impl Fn(&Attrs) -> Vec<InplacePair> + Send + Sync + 'static,
    ) -> Self {
        self.inplace = Listed::by(f);
        self
    }

    /// Resources that a call needs. One that draws random numbers is not deterministic.
    pub fn resources(mut self, r: &'static [ResourceRequest]) -> Self {
        self.resources = Resources::fixed(r);
        if r.contains(&ResourceRequest::Random) {
            self.deterministic = false;
        }
        self
    }

    /// Sets the gradient. Without one, differentiating the operator is an error.
    pub fn gradient(mut self, gradient: Gradient) -> Self {
        self.gradient = gradient;
        self
    }

    /// The function that makes the state of a node or of a recorded call, which its forward and
    /// backward runs share.
    pub fn state(
        mut self,
        f: impl Fn(&Attrs, Context, &[Shape], &[DType]) -> Result<OpState> + Send + Sync + 'static,
    ) -> Self {
        self.state = Some(Arc::new(f));
        self
    }

    /// An attribute of the variable that is made for a missing input, such as `__init__`.
    pub fn variable_attr(mut self, input: &str, key: &str, text: &str) -> Self {
        let mut all = match &self.variable_attrs {
            Listed::Fixed(known) => known.to_vec(),
            Listed::By(_) => Vec::new(),
        };
        all.push((input.to_owned(), key.to_owned(), text.to_owned()));
        self.variable_attrs = Listed::fixed(&all);
        self
    }

    /// Adds a kernel; [`OpDef::choose_kernel`] chooses among all.
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernels.push(Arc::new(kernel));
        self
    }

    /// Adds kernels, those of devices after the host's.
    pub fn kernels(mut self, kernels: impl IntoIterator<Item = Kernel>) -> Self {
        self.kernels.extend(kernels.into_iter().map(Arc::new));
        self
    }

    /// Equal calls may differ, or have effects: nodes are neither merged nor recomputed.
    pub fn not_deterministic(mut self) -> Self {
        self.deterministic = false;
        self
    }

    /// Computing it again costs too much: `MXNET_BACKWARD_DO_MIRROR` keeps its outputs.
    pub fn expensive(mut self) -> Self {
        self.expensive = true;
        self
    }

    /// A copy may run again although the operator modifies inputs: its outputs do not depend on
    /// what it writes there. (The copy gets memory of its own in place of these inputs.)
    pub fn rerun_safe(mut self) -> Self {
        self.rerun_safe = true;
        self
    }

    /// See [`OpDef::shaped_by_numbers`].
    pub fn shaped_by_numbers(mut self) -> Self {
        self.shaped_by_numbers = true;
        self
    }

    /// See [`OpDef::continues`].
    pub fn continues(mut self, f: impl Fn(&Attrs) -> bool + Send + Sync + 'static) -> Self {
        self.continues = Some(Arc::new(f));
        self
    }

    /// Missing inputs of a symbol are errors: no variables are made for them.
    pub fn no_auto_variables(mut self) -> Self {
        self.auto_variables = false;
        self
    }
}
