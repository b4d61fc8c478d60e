//! Operators defined in Python: turns a `rsnet._operators.definition.Definition` into an [`OpDef`].
//!
//! Everything an operator may say about itself is a Python function of the *payload* that its
//! `make` returned for one set of parameters. Their errors come back as the original exception.
//! Their kernels are in `callback`.

use super::call_python::CallPython;
use super::callback::{AskOperands, Function, Words};
use super::convert::{context_to_py, from_value};
use super::error::{from_py, to_py};
use super::operator_condition::match_from_py;
use super::operator_gradient::gradient;
use super::params::{PySchema, values_to_py};
use super::payload::{Facts, Payload, PyState};
use super::python_kernel::PythonKernel;
use super::runtime;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::operator::{
    Attrs, Body, CountedArg, InplacePair, InputDoc, Kernel, Listed, OpDef, OpState,
    ResourceRequest, Resources, Value, infer, is_hidden,
};
use crate::shape::Shape;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::any::Any;
use std::sync::Arc;

/// The Python functions of a definition, kept for the life of the operator.
struct Functions {
    facts: Py<PyAny>,
    which: usize,
}

fn payload(attrs: &Attrs) -> Result<&Payload> {
    attrs.typed().downcast_ref::<Payload>().ok_or_else(|| {
        Error::internal("an operator from Python was given the parameters of another one")
    })
}

impl Functions {
    fn compute(&self, py: Python<'_>, object: &Py<PyAny>) -> PyResult<Arc<Facts>> {
        let facts: Facts = self.facts.bind(py).call_python((object,))?.extract()?;
        Ok(Arc::new(facts))
    }

    /// The facts of a call. Those of an operator itself are computed when it is parsed; those of a
    /// backward operator when first asked for.
    fn of(&self, attrs: &Attrs) -> Arc<Facts> {
        let Ok(payload) = payload(attrs) else { return Arc::default() };
        let slot = &payload.facts[self.which];
        if let Some(facts) = slot.get() {
            return facts.clone();
        }
        let facts =
            Python::attach(|py| self.compute(py, &payload.object).map_err(|e| from_py(py, e)));
        let facts = payload.error.defer(facts);
        slot.get_or_init(|| facts).clone()
    }
}

/// Calls `function(payload, ...)`, attached to the interpreter; exceptions become errors that carry
/// them.
pub fn call<R>(
    attrs: &Attrs,
    f: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<R>,
) -> Result<R> {
    let payload = payload(attrs)?;
    Python::attach(|py| f(py, payload.object.bind(py)).map_err(|e| from_py(py, e)))
}

/// As [`call`], for functions whose caller takes no error: it is raised when the operator runs.
pub fn ask<R: Default>(
    attrs: &Attrs,
    f: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<R>,
) -> R {
    let answer = call(attrs, f);
    payload(attrs).map_or_else(|_| R::default(), |payload| payload.error.defer(answer))
}

fn attribute(definition: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Py<PyAny>>> {
    let value = definition.getattr(name)?;
    Ok((!value.is_none()).then(|| value.unbind()))
}

/// Makes the operator and puts it into the registry.
#[pyfunction]
fn define_operator(py: Python<'_>, definition: &Bound<'_, PyAny>, replace: bool) -> PyResult<()> {
    let def = build(definition)?;
    let registry = &runtime().registry;
    let result = if replace { registry.replace(def) } else { registry.add(def) };
    result.map(|_| ()).map_err(|e| to_py(py, &e))
}

fn build(d: &Bound<'_, PyAny>) -> PyResult<OpDef> {
    let name: String = d.getattr("name")?.extract()?;
    let schema = d.getattr("schema")?.cast::<PySchema>()?.get().schema.clone();
    let is_backward: bool = d.getattr("is_backward")?.extract()?;
    let functions =
        Arc::new(Functions { facts: d.getattr("facts")?.unbind(), which: is_backward as usize });

    let make = d.getattr("make")?.unbind();
    let at_parse = functions.clone();
    let typed = Arc::new(move |values: &[Value], given: &[(String, Value)]| {
        Python::attach(|py| parse(py, &make, &at_parse, values, given))
            .map(|p| Arc::new(p) as Arc<dyn Any + Send + Sync>)
    });
    let mut def = OpDef::dynamic(&name, (*schema).clone(), typed);
    def.aliases = d.getattr("aliases")?.extract()?;
    def.doc = d.getattr("doc")?.extract()?;
    def.key_var_num_args = d.getattr("key_var_num_args")?.extract()?;
    let arguments: Vec<(String, usize, bool, bool)> = d.getattr("arguments")?.extract()?;
    let argument = |(name, count, open, optional)| CountedArg { name, count, optional, open };
    def.arguments = arguments.into_iter().map(argument).collect();
    def.is_backward = is_backward;
    def.deterministic = d.getattr("deterministic")?.extract()?;
    let docs: Vec<(String, String, String)> = d.getattr("input_docs")?.extract()?;
    def.input_docs = docs.into_iter().map(|(name, ty, doc)| InputDoc { name, ty, doc }).collect();
    add_names(&mut def, &functions);
    add_inference(&mut def, d)?;
    add_hints(&mut def, d)?;
    def.gradient = gradient(d)?;
    def.deferred_error = Some(Arc::new(|attrs| payload(attrs)?.error.check()));
    if let Some(function) = attribute(d, "state")? {
        def.state = Some(Arc::new(move |attrs, ctx, shapes, types| {
            make_state(&function, attrs, ctx, shapes, types)
        }));
    }
    for spec in d.getattr("kernels")?.try_iter()? {
        let (kernel_name, matches, priority, run, numpy, results, assign, accumulates, takes_ctx): (
            String,
            Bound<'_, PyAny>,
            i32,
            Py<PyAny>,
            bool,
            String,
            String,
            bool,
            bool,
        ) = spec?.extract()?;
        let words = Words { results, assign };
        let operands = attribute(d, "operands")?;
        let operands = operands.map(|function| AskOperands { function, which: functions.which });
        let mut function = Function::new(&name, run, words);
        (function.numpy, function.takes_ctx, function.operands) = (numpy, takes_ctx, operands);
        let body = Body::Callback(Arc::new(PythonKernel::new(function)));
        let kernel = Kernel::new(kernel_name, match_from_py(&matches)?, body);
        def.kernels.push(Arc::new(Kernel { priority, accumulates, ..kernel }));
    }
    Ok(def)
}

fn parse(
    py: Python<'_>,
    make: &Py<PyAny>,
    functions: &Functions,
    values: &[Value],
    given: &[(String, Value)],
) -> Result<Payload> {
    let made = || -> PyResult<Payload> {
        let dict = PyDict::new(py);
        for (k, v) in given.iter().filter(|(k, _)| !is_hidden(k)) {
            dict.set_item(k, from_value(py, v)?)?;
        }
        let object = make.bind(py).call_python((values_to_py(py, values)?, dict))?.unbind();
        let facts = functions.compute(py, &object)?;
        let (facts_of, given, error) = Default::default();
        let payload = Payload { object, facts: facts_of, given, error };
        let _ = payload.facts[functions.which].set(facts);
        Ok(payload)
    };
    made().map_err(|e| from_py(py, e))
}

fn add_names(def: &mut OpDef, functions: &Arc<Functions>) {
    let f = functions.clone();
    def.input_names = Listed::by(move |a| f.of(a).inputs.clone());
    let f = functions.clone();
    def.output_names = Listed::by(move |a| f.of(a).outputs.clone());
    let f = functions.clone();
    def.visible_outputs = Some(Arc::new(move |a| f.of(a).visible));
    let f = functions.clone();
    def.mutates = Listed::by(move |a| f.of(a).mutated.clone());
    let f = functions.clone();
    def.ignores = Listed::by(move |a| f.of(a).ignored.clone());
}

fn add_inference(def: &mut OpDef, d: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Some(function) = attribute(d, "infer_shape")? {
        let names = (def.input_names.clone(), def.output_names.clone());
        def.infer_shape = Some(Arc::new(move |attrs, ins, outs| {
            infer_shape(&function, attrs, ins, outs, &names.0.to_vec(attrs), &names.1.to_vec(attrs))
        }));
    }
    if let Some(function) = attribute(d, "infer_type")? {
        let names = (def.input_names.clone(), def.output_names.clone());
        def.infer_type = Some(Arc::new(move |attrs, ins, outs| {
            infer_type(&function, attrs, ins, outs, &names.0.to_vec(attrs), &names.1.to_vec(attrs))
        }));
    }
    if let Some(function) = attribute(d, "infer_both")? {
        let names = (def.input_names.clone(), def.output_names.clone());
        def.infer_both = Some(Arc::new(move |attrs, ins, outs| {
            infer_both(&function, attrs, ins, outs, &names.0.to_vec(attrs), &names.1.to_vec(attrs))
        }));
    }
    Ok(())
}

fn shapes_to_py<'py>(py: Python<'py>, shapes: &[Shape]) -> PyResult<Bound<'py, PyList>> {
    let tuples = shapes
        .iter()
        .map(|s| PyTuple::new(py, s.to_legacy().iter().copied()))
        .collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, tuples)
}

fn infer_shape(
    function: &Py<PyAny>,
    attrs: &Attrs,
    ins: &mut [Shape],
    outs: &mut [Shape],
    in_names: &[String],
    out_names: &[String],
) -> Result<bool> {
    type Answer = Option<(Vec<Vec<i64>>, Vec<Vec<i64>>, Option<bool>)>;
    let exact = ins.iter().all(Shape::is_known);
    let answer: Answer = call(attrs, |py, payload| {
        let args = (payload, shapes_to_py(py, ins)?, shapes_to_py(py, outs)?, exact);
        function.bind(py).call_python(args)?.extract()
    })?;
    let Some((new_ins, new_outs, empty)) = answer else { return Ok(false) };
    // Functions cannot distinguish an empty axis from an unknown extent: where no input is empty, 0
    // means unknown.
    let empty = empty.unwrap_or_else(|| ins.iter().any(|s| s.dims().contains(&0)));
    let scalars = ins.iter().any(|s| s.ndim() == 0);
    let shape = |dims: &[i64]| match dims {
        [] if exact && scalars => Shape::scalar(),
        [] => Shape::unknown(),
        dims if exact && empty => Shape::new(dims),
        dims => Shape::from_legacy(dims),
    };
    for ((slot, dims), name) in ins.iter_mut().zip(&new_ins).zip(in_names) {
        infer::assign_shape(slot, name, &shape(dims))?;
    }
    for ((slot, dims), name) in outs.iter_mut().zip(&new_outs).zip(out_names) {
        infer::assign_shape(slot, name, &shape(dims))?;
    }
    Ok(ins.iter().chain(outs.iter()).all(Shape::is_known))
}

fn infer_type(
    function: &Py<PyAny>,
    attrs: &Attrs,
    ins: &mut [Option<DType>],
    outs: &mut [Option<DType>],
    in_names: &[String],
    out_names: &[String],
) -> Result<bool> {
    let answer: Option<(Names, Names)> = call(attrs, |py, payload| {
        function.bind(py).call_python((payload, type_names(ins), type_names(outs)))?.extract()
    })?;
    let Some((new_ins, new_outs)) = answer else { return Ok(false) };
    assign_types(ins, new_ins, in_names)?;
    assign_types(outs, new_outs, out_names)?;
    Ok(ins.iter().chain(outs.iter()).all(Option::is_some))
}

type Names = Vec<Option<String>>;

fn type_names(types: &[Option<DType>]) -> Vec<Option<&'static str>> {
    types.iter().map(|t| t.map(DType::name)).collect()
}

fn assign_types(slots: &mut [Option<DType>], names: Names, arguments: &[String]) -> Result<()> {
    for ((slot, name), argument) in slots.iter_mut().zip(names).zip(arguments) {
        if let Some(name) = name {
            infer::assign_type(slot, argument, DType::from_name(&name)?)?;
        }
    }
    Ok(())
}

fn infer_both(
    function: &Py<PyAny>,
    attrs: &Attrs,
    (in_shapes, in_types): (&[Shape], &mut [Option<DType>]),
    (out_shapes, out_types): (&mut [Shape], &mut [Option<DType>]),
    in_names: &[String],
    out_names: &[String],
) -> Result<Vec<Option<DType>>> {
    // The function takes float32 where nothing is known, which is for who asks to choose.
    if !in_types.is_empty() && in_types.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let (new_ins, shapes, new_outs): (Names, Vec<Vec<i64>>, Names) = call(attrs, |py, payload| {
        let args = (payload, shapes_to_py(py, in_shapes)?, type_names(in_types));
        function.bind(py).call_python(args)?.extract()
    })?;
    for ((slot, dims), name) in out_shapes.iter_mut().zip(&shapes).zip(out_names) {
        infer::assign_shape(slot, name, &Shape::new(dims))?;
    }
    assign_types(in_types, new_ins, in_names)?;
    assign_types(out_types, new_outs, out_names)?;
    Ok(Vec::new())
}

/// In-place pairs, attributes of input variables, native accumulation, and resources.
fn add_hints(def: &mut OpDef, d: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Some(function) = attribute(d, "inplace")? {
        def.inplace = Listed::by(move |attrs| {
            let pairs: Vec<(usize, usize, bool)> =
                ask(attrs, |py, p| function.bind(py).call_python((p,))?.extract());
            let pair = |(input, output, identity)| InplacePair { input, output, identity };
            pairs.into_iter().map(pair).collect()
        });
    }
    if let Some(function) = attribute(d, "variable_attrs")? {
        def.variable_attrs = Listed::by(move |attrs| {
            ask(attrs, |py, p| function.bind(py).call_python((p,))?.extract())
        });
    }
    if let Some(function) = attribute(d, "accumulates")? {
        def.accumulates = Some(Arc::new(move |attrs| {
            ask(attrs, |py, p| function.bind(py).call_python((p,))?.extract())
        }));
    }
    if let Some(function) = attribute(d, "resources")? {
        def.resources = Resources::by(move |attrs, inputs, outputs| {
            let requests: Vec<(String, usize)> = call(attrs, |py, p| {
                let args = (p, shapes_to_py(py, inputs)?, shapes_to_py(py, outputs)?);
                function.bind(py).call_python(args)?.extract()
            })?;
            let request = |(kind, bytes): (String, usize)| match kind.as_str() {
                "random" => ResourceRequest::Random,
                _ => ResourceRequest::TempSpace { bytes },
            };
            Ok(requests.into_iter().map(request).collect())
        });
    }
    Ok(())
}

fn make_state(
    function: &Py<PyAny>,
    attrs: &Attrs,
    ctx: Context,
    shapes: &[Shape],
    types: &[DType],
) -> Result<OpState> {
    let types: Vec<&str> = types.iter().map(|t| t.name()).collect();
    let object = call(attrs, |py, payload| {
        let args = (payload, context_to_py(py, ctx)?, shapes_to_py(py, shapes)?, types);
        function.bind(py).call_python(args).map(Bound::unbind)
    })?;
    Ok(Arc::new(PyState(object)))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(define_operator, m)?)
}
