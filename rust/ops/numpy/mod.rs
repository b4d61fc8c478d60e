//! Operators of MXNet's NumPy interface: `_np_*`, `_npi_*` and `_npx_*`. Symbol files of networks
//! that were written with it hold them.
//!
//! Most compute what an older operator does, with shapes and dtypes as in NumPy: a reduction over
//! all axes gives shape `()`, a comparison bool, a position int64. They are derived from it
//! (`operator/derived.rs`) and keep its kernels and gradients. Operands of arithmetic may have
//! different dtypes (`arithmetic.rs`).

mod arithmetic;
mod choosing;
mod contraction;
mod drawing;
mod einsum;
mod elements;
mod functions;
mod inserting;
mod joining;
mod linear;
mod making;
mod norms;
mod pieces;
mod placing;
mod products;
mod reductions;
mod sampling;
mod shapes;
mod statistics;
mod systems;

use super::higher_order::complete;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::broadcast::broadcast_strides;
use crate::kernels::copy::copy;
use crate::kernels::layout::copy_strided;
use crate::kernels::scratch::with_scratch;
use crate::operator::infer::{assign_shape, one_type};
use crate::operator::{Attrs, Body, Call, Gradient, Kernel, NativeFn, OpDef, OpReq, Registry};
use crate::shape::Shape;
use crate::tensor::View;
use std::sync::Arc;

/// Registers the family, whose originals are there.
pub fn register(registry: &Registry) {
    let families: &[fn(&Registry) -> Vec<OpDef>] = &[
        arithmetic::operators,
        reductions::operators,
        shapes::operators,
        making::operators,
        choosing::operators,
        elements::operators,
        products::operators,
        drawing::operators,
        einsum::operators,
        functions::operators,
        inserting::operators,
        joining::operators,
        linear::operators,
        norms::operators,
        pieces::operators,
        placing::operators,
        sampling::operators,
        statistics::operators,
        systems::operators,
    ];
    for def in families.iter().flat_map(|family| family(registry)) {
        registry.add(complete(def)).expect("built-in operators have names of their own");
    }
}

/// An operator that others are derived from.
fn original(registry: &Registry, name: &str) -> OpDef {
    registry.find(name).expect("the family is registered after its originals").as_ref().clone()
}

fn text(what: &str, notes: &str, example: &str) -> String {
    format!("{what}\n\nNotes\n-----\n{notes}\n\nExamples\n--------\n>>> nd._internal.{example}\n")
}

/// The computation of an operator on the host.
fn on_host(def: &OpDef) -> NativeFn {
    let found = def.kernels.iter().find_map(|kernel| match &kernel.body {
        Body::Native(run) => Some(run.clone()),
        _ => None,
    });
    found.expect("a built-in operator has a kernel for the host")
}

/// A kernel for the host that is not run when no output is wanted.
fn kernel(f: impl Fn(&Call<'_>) -> Result<()> + Send + Sync + 'static) -> Kernel {
    Kernel::cpu(move |call| match call.req.iter().all(|r| *r == OpReq::Null) {
        true => Ok(()),
        false => f(call),
    })
    .skips_null()
}

/// An empty list with room for `count` elements.
fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count)
        .map_err(|_| Error::no_memory(count.saturating_mul(size_of::<T>())))?;
    Ok(list)
}

/// A list of zeros.
fn zeros(count: usize) -> Result<Vec<f64>> {
    let mut list = room(count)?;
    list.resize(count, 0.0);
    Ok(list)
}

/// Calls `f` with scratch of the shape of `view` in another dtype.
fn in_scratch<R>(view: &View, dtype: DType, f: impl FnOnce(&View) -> R) -> R {
    with_scratch::<f64, _>((view.size() * dtype.size()).div_ceil(8), |room| {
        // SAFETY: the scratch is large enough, aligned for every dtype and ours during the call.
        f(&unsafe { View::new(room.as_mut_ptr().cast(), view.shape().clone(), dtype) })
    })
}

/// Writes `from`, broadcast to the shape of `to`, in the dtype of `to`.
fn spread(from: &View, to: &View) {
    if from.shape() == to.shape() {
        return copy(from, to);
    }
    let strides = broadcast_strides(from.shape(), to.shape());
    // SAFETY: repeated axes have stride 0, all others are the view's own.
    let seen = unsafe { View::with_strides(from.ptr(), to.shape().clone(), strides, from.dtype()) };
    // SAFETY: both views have one shape and dtype, and lie apart.
    let lay = |to: &View| unsafe { copy_strided(&seen, to) };
    match from.dtype() == to.dtype() {
        true => lay(to),
        false => in_scratch(to, from.dtype(), |room| {
            lay(room);
            copy(room, to);
        }),
    }
}

/// The operator with bool as the dtype of its output: it computes in that of its inputs, which
/// agree, and what is not 0 is true. No gradient arrives at the inputs.
fn to_bool(def: OpDef) -> OpDef {
    let run = on_host(&def);
    let mut def = def
        .of_two_dtypes()
        .infer_type(|_, inputs, outputs| {
            outputs[0] = Some(DType::Bool);
            one_type(&mut [("input", inputs)])
        })
        .gradient(Gradient::Zero);
    def.kernels = vec![Arc::new(kernel(move |call| {
        let out = &call.outputs[0];
        in_scratch(out, call.inputs[0].dtype(), |wide| {
            run(&Call { outputs: std::slice::from_ref(wide), ..*call })?;
            copy(wide, out);
            Ok(())
        })
    }))];
    def
}

/// The operator for inputs of which `fits` holds, which it calls `expected`.
fn only(def: OpDef, fits: fn(DType) -> bool, expected: &'static str) -> OpDef {
    let infer = def.infer_type.clone();
    let name = def.input_docs.first().map_or("data".to_owned(), |input| input.name.clone());
    def.infer_type(move |attrs, inputs, outputs| {
        let known = infer.as_ref().map_or(Ok(true), |infer| infer(attrs, inputs, outputs))?;
        match inputs.iter().flatten().find(|dtype| !fits(**dtype)) {
            Some(dtype) => Err(Error::argument(&name, "dtype", dtype, expected)),
            None => Ok(known),
        }
    })
}

fn only_floats(def: OpDef) -> OpDef {
    only(def, DType::is_float, "a float")
}

/// Infers the output's shape by `rule` once the rank of the first input is known.
fn shaped_by(def: OpDef, rule: fn(&Attrs, &Shape) -> Result<Shape>) -> OpDef {
    def.infer_shape(move |attrs, inputs, outputs| {
        if inputs[0].rank_known() {
            let shape = rule(attrs, &inputs[0])?;
            assign_shape(&mut outputs[0], "output", &shape)?;
        }
        Ok(inputs[0].is_known() && outputs[0].is_known())
    })
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::ops::testing::{Tensor, check_gradient, values};

    #[test]
    fn operands_are_repeated() {
        let row = Tensor::of(&[3], &[1.0, 0.0, 1.0]);
        let column = Tensor::of(&[2, 1], &[5.0, 6.0]);
        let number = Tensor::of(&[], &[9.0]);
        let all = [row.clone(), column.clone(), number];
        assert_eq!(values("_npi_where", &[], &all), [5.0, 9.0, 5.0, 6.0, 9.0, 6.0]);
        check_gradient("_npi_where", &[], &all, &[1, 2], true);
        let kept = [column, row.clone()];
        assert_eq!(
            values("_npi_where_rscalar", &[("scalar", "7")], &kept),
            [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
        );
        let bits = [&[2, 1][..], &[3]].map(|dims| {
            let numbers: Vec<f64> =
                (0..dims.iter().product::<i64>()).map(|i| 5.0 + i as f64).collect();
            Tensor::new(dims, DType::I32, &numbers)
        });
        assert_eq!(values("_npi_bitwise_and", &[], &bits), [5.0, 4.0, 5.0, 4.0, 6.0, 6.0]);
    }
}
