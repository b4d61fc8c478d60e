//! The methods of `_core.SymbolHandle`, and the registry as the symbol face sees it.

use super::convert::{context_arg, context_to_py, dtype_to_py, shape_to_py};
use super::executor::PyPlan;
use super::graph::{PyGraph, gradient_symbol};
use super::runtime;
use super::symbol::{PySymbol, raise};
use crate::dtype::DType;
use crate::error::Result;
use crate::executor::bind::plan_options;
use crate::graph::{
    ArraySpec, Create, Cut, Inferred, PlanRequest, SymNode, Symbol, arrays_to_bind, load_json,
};
use crate::operator::Value;
use crate::shape::Shape;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn cores(symbols: Vec<PyRef<'_, PySymbol>>) -> Vec<Symbol> {
    symbols.iter().map(|s| s.symbol.clone()).collect()
}

fn keyed(symbols: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Symbol)>> {
    symbols
        .iter()
        .map(|(k, v)| {
            let handle = v.cast::<PySymbol>()?;
            Ok((k.extract()?, handle.get().symbol.clone()))
        })
        .collect()
}

/// Dimensions with -1 for unknown ones; `None` for an unknown rank.
pub fn shape_of(dims: Option<Vec<i64>>) -> Shape {
    dims.map_or_else(Shape::unknown, |d| d.into_iter().collect())
}

fn dims_of<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyAny>> {
    if !shape.rank_known() {
        return Ok(py.None().into_bound(py));
    }
    Ok(PyTuple::new(py, shape.dims())?.into_any())
}

#[pymethods]
impl PySymbol {
    #[staticmethod]
    fn variable(name: &str, attrs: BTreeMap<String, String>) -> Self {
        Symbol::variable(name, attrs).into()
    }

    #[staticmethod]
    fn create(
        op: &str,
        name: &str,
        params: BTreeMap<String, String>,
        attrs: BTreeMap<String, String>,
        args: Vec<PyRef<'_, PySymbol>>,
        kwargs: &Bound<'_, PyDict>,
        bodies: Vec<PyRef<'_, PySymbol>>,
    ) -> PyResult<Self> {
        let op = runtime().registry.find(op).map_err(raise)?;
        let params: Vec<(&str, Value)> =
            params.iter().map(|(k, v)| (k.as_str(), Value::Str(v.clone()))).collect();
        let (args, kwargs, bodies) = (cores(args), keyed(kwargs)?, cores(bodies));
        let with =
            Create { params: &params, name, dict: attrs, args: &args, kwargs: &kwargs, bodies };
        Ok(Symbol::create(&op, with).map_err(raise)?.into())
    }

    /// Cuts out the nodes whose attribute `key` is `value`: the part, for each of its variables the
    /// number among `variables`, and what it is outside.
    fn cut(
        &self,
        key: &str,
        value: &str,
        variables: Vec<PyRef<'_, PySymbol>>,
    ) -> PyResult<(Self, Vec<Option<usize>>, Vec<Self>)> {
        let inside = |node: &SymNode| node.meta().dict.get(key).is_some_and(|v| v == value);
        let Cut { body, outside } = self.symbol.cut(inside).map_err(raise)?;
        let numbers = body.among(&cores(variables)).map_err(raise)?;
        let single = |entry| Symbol { outputs: vec![entry] }.into();
        Ok((body.into(), numbers, outside.into_iter().map(single).collect()))
    }

    /// Returns true if the other symbol has the same outputs of the same nodes.
    fn is_same(&self, other: PyRef<'_, PySymbol>) -> bool {
        let (mine, others) = (&self.symbol.outputs, &other.symbol.outputs);
        let mut pairs = mine.iter().zip(others);
        mine.len() == others.len()
            && pairs.all(|(a, b)| Arc::ptr_eq(&a.node, &b.node) && a.index == b.index)
    }

    /// The operators of nodes, outside of subgraphs, whose outputs have shapes that depend on
    /// numbers.
    fn shaped_by_numbers(&self) -> BTreeSet<String> {
        let nodes = self.symbol.walk();
        let ops = nodes.iter().filter_map(|node| node.op.as_ref());
        ops.filter(|op| op.shaped_by_numbers).map(|op| op.name.clone()).collect()
    }

    #[staticmethod]
    fn group(symbols: Vec<PyRef<'_, PySymbol>>) -> Self {
        Symbol::group(&cores(symbols)).into()
    }

    /// The symbol, the version that wrote it (major·10000 + minor·100 + patch), and whether that is
    /// older and whether it is newer than the current one.
    #[staticmethod]
    fn from_json(
        text: &str,
        np_shape: bool,
        allow_unknown: bool,
    ) -> PyResult<(Self, i64, bool, bool)> {
        let registry = &runtime().registry;
        let loaded = load_json(text, registry, np_shape, allow_unknown).map_err(raise)?;
        Ok((loaded.value.into(), loaded.version, loaded.upgraded, loaded.newer))
    }

    fn compose(
        &self,
        args: Vec<PyRef<'_, PySymbol>>,
        kwargs: &Bound<'_, PyDict>,
        name: Option<&str>,
    ) -> PyResult<Self> {
        let (args, kwargs) = (cores(args), keyed(kwargs)?);
        Ok(self.symbol.compose(name, &args, &kwargs).map_err(raise)?.into())
    }

    fn atomic(&self) -> Option<Self> {
        Some(self.symbol.atomic()?.into())
    }

    #[getter]
    fn name(&self) -> Option<String> {
        self.symbol.name()
    }

    #[getter]
    fn num_outputs(&self) -> usize {
        self.symbol.len()
    }

    fn output(&self, index: usize) -> PyResult<Self> {
        match self.symbol.outputs.get(index) {
            Some(_) => Ok(self.symbol.at(index).map_err(raise)?.into()),
            None => Err(PyIndexError::new_err(format!(
                "invalid output {index}: expected less than {}",
                self.symbol.len()
            ))),
        }
    }

    fn list_arguments(&self) -> Vec<String> {
        self.symbol.list_arguments()
    }

    fn list_auxiliary_states(&self) -> Vec<String> {
        self.symbol.list_auxiliary_states()
    }

    fn list_inputs(&self) -> Vec<String> {
        self.symbol.list_inputs()
    }

    fn list_outputs(&self) -> Vec<String> {
        self.symbol.list_outputs()
    }

    fn internals(&self) -> Self {
        self.symbol.get_internals().into()
    }

    fn children(&self) -> Option<Self> {
        self.symbol.get_children().map(Into::into)
    }

    fn attr(&self, key: &str) -> Option<String> {
        self.symbol.attr(key)
    }

    fn list_attr(&self) -> BTreeMap<String, String> {
        self.symbol.list_attr()
    }

    fn attr_dict(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        self.symbol.attr_dict()
    }

    fn set_attr(&self, attrs: BTreeMap<String, String>) -> PyResult<()> {
        attrs.iter().try_for_each(|(k, v)| self.symbol.attr_set(k, v)).map_err(raise)
    }

    fn copy(&self) -> PyResult<Self> {
        Ok(self.symbol.deep_copy().map_err(raise)?.into())
    }

    fn tojson(&self, np_shape: bool, remove_amp_cast: bool) -> PyResult<String> {
        let symbol = &self.symbol;
        let text = match remove_amp_cast {
            true => symbol.to_json_without_amp_casts(np_shape),
            false => symbol.to_json(np_shape),
        };
        text.map_err(raise)
    }

    fn debug_str(&self) -> PyResult<String> {
        self.symbol.debug_str().map_err(raise)
    }

    fn graph(&self) -> PyResult<PyGraph> {
        PyGraph::new(&self.symbol)
    }

    fn grad(&self, wrt: Vec<String>) -> PyResult<Self> {
        Ok(gradient_symbol(&self.symbol, &wrt)?.into())
    }

    /// The plan of binding with these facts and one request per argument; with `dump` it keeps the
    /// graph after every pass as text.
    fn memory_plan(
        &self,
        facts: FactsArg<'_>,
        reqs: Vec<String>,
        memory_limit: Option<usize>,
        dump: bool,
    ) -> PyResult<PyPlan> {
        let mut request = self.request(facts)?;
        if request.group2ctx.is_some() {
            // Bound arrays lie on the devices that they are made on.
            let (args, aux) = arrays_to_bind(&request).map_err(raise)?;
            request.arg_ctx = args.iter().map(|a| Some(a.ctx)).collect();
            request.aux_ctx = aux.iter().map(|a| Some(a.ctx)).collect();
        }
        request.grad_req = super::executor::requests(&reqs)?;
        request.memory_limit = memory_limit;
        request.dump = dump;
        let plan = crate::graph::plan(&request).map_err(raise)?;
        Ok(PyPlan::new(Arc::new(plan)))
    }

    /// Shapes, dtypes and devices of the arrays to bind to arguments and auxiliary states.
    fn arrays_to_bind<'py>(
        &self,
        py: Python<'py>,
        facts: FactsArg<'py>,
    ) -> PyResult<(WantedArrays<'py>, WantedArrays<'py>)> {
        let (args, aux) = arrays_to_bind(&self.request(facts)?).map_err(raise)?;
        let one = |a: &ArraySpec| {
            let shape = shape_to_py(py, &a.shape)?;
            Ok((shape, dtype_to_py(py, a.dtype)?, context_to_py(py, a.ctx)?))
        };
        let list = |wanted: &[ArraySpec]| wanted.iter().map(one).collect::<PyResult<Vec<_>>>();
        Ok((list(&args)?, list(&aux)?))
    }

    /// Shapes of arguments, outputs and auxiliary states, and whether all are known.
    fn infer_shape<'py>(
        &self,
        py: Python<'py>,
        names: Vec<String>,
        shapes: Vec<Option<Vec<i64>>>,
        np_shape: bool,
    ) -> PyResult<(Shapes<'py>, Shapes<'py>, Shapes<'py>, bool)> {
        let given: Vec<_> = names.into_iter().zip(shapes.into_iter().map(shape_of)).collect();
        let found = self.symbol.infer_shape(&given, np_shape).map_err(raise)?;
        let show =
            |shapes: &[Shape]| shapes.iter().map(|s| dims_of(py, s)).collect::<PyResult<_>>();
        Ok((show(&found.args)?, show(&found.outputs)?, show(&found.aux)?, found.complete))
    }

    /// Names of the dtypes of arguments, outputs and auxiliary states, and whether all are known.
    fn infer_type(
        &self,
        names: Vec<String>,
        types: Vec<Option<String>>,
    ) -> PyResult<(Types, Types, Types, bool)> {
        let given = named_types(names, types).map_err(raise)?;
        let found: Inferred<Option<DType>> = self.symbol.infer_type(&given).map_err(raise)?;
        let show = |types: &[Option<DType>]| types.iter().map(|t| t.map(DType::name)).collect();
        Ok((show(&found.args), show(&found.outputs), show(&found.aux), found.complete))
    }

    /// Operators and names of the nodes, also inside of loops, at which dtypes alone end.
    fn untyped_nodes(
        &self,
        names: Vec<String>,
        types: Vec<Option<String>>,
    ) -> PyResult<Vec<(String, String)>> {
        let given = named_types(names, types).map_err(raise)?;
        let found = self.symbol.untyped_nodes(&given).map_err(raise)?;
        Ok(found.into_iter().map(|found| (found.operator, found.node)).collect())
    }
}

impl PySymbol {
    /// The request to plan or bind with these facts.
    fn request(&self, facts: FactsArg<'_>) -> PyResult<PlanRequest> {
        let (shapes, types, ctx, group2ctx, np_shape) = facts;
        let (names, types) = types.into_iter().map(|(n, t)| (n, Some(t))).unzip();
        let groups = super::executor::groups(group2ctx.as_ref())?;
        Ok(PlanRequest {
            shapes: shapes.into_iter().map(|(n, s)| (n, shape_of(s))).collect(),
            types: named_types(names, types).map_err(raise)?,
            default_ctx: context_arg(ctx.as_ref())?,
            group2ctx: (!groups.is_empty()).then_some(groups),
            np_shape,
            options: plan_options(),
            ..PlanRequest::new(self.symbol.clone(), runtime().registry.clone())
        })
    }
}

/// Shapes and dtypes by name, default device, devices of groups, and whether 0 is a real extent.
type FactsArg<'py> = (
    BTreeMap<String, Option<Vec<i64>>>,
    BTreeMap<String, String>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyDict>>,
    bool,
);
type WantedArrays<'py> = Vec<(Bound<'py, PyTuple>, Bound<'py, PyAny>, Bound<'py, PyAny>)>;

type Types = Vec<Option<&'static str>>;
type Shapes<'py> = Vec<Bound<'py, PyAny>>;

/// Pairs of name and dtype, those without a dtype left out.
pub fn named_types(names: Vec<String>, types: Vec<Option<String>>) -> Result<Vec<(String, DType)>> {
    let known = names.into_iter().zip(types).filter_map(|(n, t)| t.map(|t| (n, t)));
    known.map(|(name, text)| Ok((name, DType::from_name(&text)?))).collect()
}

/// The number that files use for a dtype.
#[pyfunction]
fn dtype_flag(name: &str) -> PyResult<i32> {
    Ok(DType::from_name(name).map_err(raise)?.flag())
}

/// What errors say of a dtype that there is not.
#[pyfunction]
fn known_dtypes() -> String {
    DType::known()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySymbol>()?;
    m.add_function(wrap_pyfunction!(known_dtypes, m)?)?;
    m.add_function(wrap_pyfunction!(dtype_flag, m)?)
}
