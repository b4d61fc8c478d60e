//! The operator contract: definitions, parameters, gradients, kernels, the registry.
//!
//! Everything that can run is one [`OpDef`]; see its fields for what an operator may say about
//! itself. It depends on views, but not on arrays, the engine or storage.

mod as_gradient;
mod builder;
mod choose;
mod counted;
mod def;
mod deferred;
mod derived;
mod device;
mod gradient;
pub mod infer;
mod kernel;
mod listed;
mod literal;
mod paragraphs;
mod param;
mod parse;
pub mod property;
mod recent;
mod registry;
mod request;
mod value;

pub use as_gradient::InGradient;
pub use counted::{CountedArg, share_among_others, share_out};
pub use def::{
    ARG_COUNTS, Alone, CROSS_DEVICE_COPY, FEW_ELEMS, Facts, InferBody, InferBothFn, InferThroughFn,
    InplacePair, InputDoc, OpDef,
};
pub use deferred::DeferredError;
pub use derived::Mapped;
pub use device::{
    Args, Argument, Axes, DeviceFunction, DeviceKernel, Grid, HeldMemory, Launcher, MatrixProduct,
    Rows, c_type,
};
pub use gradient::{
    Dep, GradBuilder, GradEntry, GradFn, GradNode, Gradient, Gradients, name_in_rule,
};
pub use kernel::{
    Around, Body, Call, Callback, Compare, DeviceMemory, Done, InParts, Kernel, Match, MatchFacts,
    NativeFn, OfInputs, OnElements, OpContext, OpState, OwnedCall, Within,
};
pub use listed::Listed;
pub use paragraphs::wrapped;
pub use param::{Attrs, Field, NoParam, ParamStruct, Schema, field_default, is_hidden};
pub use registry::Registry;
pub use request::{OpReq, RandomKey, ResourceRequest, Resources};
pub use value::{FieldType, ParamType, Tuple, Value, dtype_names};
