//! The input of planning, and the places of entries in a plan.

use crate::context::Context;
use crate::dtype::DType;
use crate::graph::Symbol;
use crate::operator::{OpReq, Registry};
use crate::shape::Shape;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Switches that old programs set by environment variables.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// `MXNET_BACKWARD_DO_MIRROR`: compute cheap forward nodes again instead of keeping their
    /// outputs.
    pub mirror: bool,
    /// `MXNET_BACKWARD_MIRROR_STEP`: one in this number of cheap nodes is kept.
    pub mirror_step: usize,
    /// `MXNET_EXEC_ENABLE_INPLACE`.
    pub inplace: bool,
    /// `MXNET_ELIMINATE_COMMON_EXPR`.
    pub merge_common: bool,
    /// `MXNET_EXEC_INPLACE_GRAD_SUM_CAP`: fewer gradients than this are summed by one
    /// operator, others in place, one at a time.
    pub inplace_sum_cap: usize,
    /// `NNVM_EXEC_NUM_TEMP`: the most distinct temporary spaces.
    pub num_temp: usize,
    /// Place outputs in the arena too, as MXNet does: for comparing plans with MXNet's. Executors
    /// place outputs in separate arrays, which the next user of the arena does not overwrite.
    pub outputs_in_arena: bool,
    /// May an output's array hold entries that end before the output is written? Not with sharing
    /// refused (`inplace`).
    pub outputs_host: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions {
            mirror: false,
            mirror_step: 100,
            inplace: true,
            merge_common: true,
            inplace_sum_cap: 8,
            num_temp: 1,
            outputs_in_arena: false,
            outputs_host: true,
        }
    }
}

impl PlanOptions {
    /// Reads the environment variables; values that are not numbers are ignored.
    pub fn from_env() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.trim().parse::<usize>().ok();
        let default = PlanOptions::default();
        let flag = |name: &str, otherwise: bool| number(name).map_or(otherwise, |n| n != 0);
        PlanOptions {
            mirror: flag("MXNET_BACKWARD_DO_MIRROR", default.mirror),
            mirror_step: number("MXNET_BACKWARD_MIRROR_STEP").unwrap_or(default.mirror_step),
            inplace: flag("MXNET_EXEC_ENABLE_INPLACE", default.inplace),
            merge_common: flag("MXNET_ELIMINATE_COMMON_EXPR", default.merge_common),
            inplace_sum_cap: number("MXNET_EXEC_INPLACE_GRAD_SUM_CAP")
                .unwrap_or(default.inplace_sum_cap)
                .max(2),
            num_temp: number("NNVM_EXEC_NUM_TEMP").unwrap_or(default.num_temp).max(1),
            outputs_in_arena: default.outputs_in_arena,
            outputs_host: default.outputs_host,
        }
    }

    /// The `step` argument of `Mirror::by_attributes`; `None` if mirroring is off.
    pub fn mirrored_step(&self) -> Option<usize> {
        self.mirror.then_some(self.mirror_step)
    }
}

/// A symbol to plan, with all that is known about its variables.
#[derive(Clone)]
pub struct PlanRequest {
    pub symbol: Symbol,
    pub registry: Arc<Registry>,
    /// Known shapes by variable name.
    pub shapes: Vec<(String, Shape)>,
    /// Known dtypes by variable name.
    pub types: Vec<(String, DType)>,
    /// Shapes and dtypes of bound arrays by position in `list_arguments`, empty when not bound;
    /// they win over those by name.
    pub bound_args: Vec<Option<(Shape, DType)>>,
    /// The same for `list_auxiliary_states`.
    pub bound_aux: Vec<Option<(Shape, DType)>>,
    /// One request per argument, in the order of `list_arguments`; missing ones are `Null`.
    pub grad_req: Vec<OpReq>,
    pub default_ctx: Context,
    /// Devices of the groups named by `ctx_group`.
    pub group2ctx: Option<BTreeMap<String, Context>>,
    /// Devices of bound arguments and auxiliary states by position; missing ones are free.
    pub arg_ctx: Vec<Option<Context>>,
    pub aux_ctx: Vec<Option<Context>>,
    /// Most bytes of internal entries, all devices together.
    pub memory_limit: Option<usize>,
    pub np_shape: bool,
    pub options: PlanOptions,
    /// True to keep a dump of the graph after every pass in [`Plan::dumps`](crate::graph::Plan).
    pub dump: bool,
}

impl PlanRequest {
    /// May outputs hold other entries before they are written?
    pub(in crate::graph) fn may_host(&self) -> bool {
        self.options.outputs_host && self.options.inplace
    }

    pub fn new(symbol: Symbol, registry: Arc<Registry>) -> Self {
        PlanRequest {
            symbol,
            registry,
            shapes: Vec::new(),
            types: Vec::new(),
            bound_args: Vec::new(),
            bound_aux: Vec::new(),
            grad_req: Vec::new(),
            default_ctx: Context::default(),
            group2ctx: None,
            arg_ctx: Vec::new(),
            aux_ctx: Vec::new(),
            memory_limit: None,
            np_shape: false,
            options: PlanOptions::default(),
            dump: false,
        }
    }
}

/// Where an entry lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it has no reader. Its request is `Null`.
    Nowhere,
    /// The array bound to the variable.
    Variable,
    /// The gradient array of this argument (a position in `list_arguments`).
    Gradient(u32),
    /// In the array of this output (a position among the heads), from its start: the output itself,
    /// what it took over in place, or an entry that ends before it.
    Output(u32),
    /// In the arena of its node's device, `offset` bytes from the start.
    Arena { offset: usize },
}
