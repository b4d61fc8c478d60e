//! The operator contract: definitions, parameters, gradients, kernels, the registry.
//!
//! Everything that can run is one [`OpDef`]; see its fields for what an operator may say about itself.
//! This room knows views, not arrays, and neither engine nor storage.

mod def;
mod gradient;
pub mod infer;
mod kernel;
mod literal;
mod param;
pub mod property;
mod registry;
mod request;
mod value;

pub use def::{InferBothFn, InplacePair, InputDoc, Listed, OpDef};
pub use gradient::{
    Dep, GradBuilder, GradEntry, GradFn, GradNode, Gradient, Gradients, InGradient,
};
pub use kernel::{
    Body, Call, Callback, Compare, Done, Kernel, Match, MatchFacts, NativeFn, OpContext, OpState,
    OwnedCall, Within,
};
pub use param::{Attrs, Field, NoParam, ParamStruct, Schema, field_default, is_hidden};
pub use registry::Registry;
pub use request::{OpReq, RandomKey, ResourceRequest, Resources};
pub use value::{FieldType, ParamType, Tuple, Value, dtype_names};
