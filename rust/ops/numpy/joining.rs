//! Arrays joined and split along an axis that follows from the number of their axes, and axes added
//! up to a number.

use super::{kernel, original, text};
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, same_type};
use crate::operator::{
    Attrs, Call, Gradient, NativeFn, OpDef, OpReq, ParamStruct, ParamType, Registry, Value,
};
use crate::ops::tensor::extras::SplitV2Param;
use crate::ops::tensor::parts::{copy_views, pieces};
use crate::params;
use crate::shape::Shape;
use crate::tensor::View;
use std::sync::Arc;

params! {
    /// Parameters of `_npi_vstack`, `_npi_column_stack` and `_np_atleast_1d` and their kin.
    pub struct CountParam {
        num_args: i32, required.ge(1.0), "Number of inputs.";
    }
}

params! {
    /// Parameters of `_npi_hstack` and `_npi_dstack`.
    pub struct CountAndDimParam {
        num_args: i32, required.ge(1.0), "Number of inputs.";
        dim: i32, default(1), "Accepted, without effect.";
    }
}

/// How arrays are joined.
#[derive(Clone, Copy)]
struct Join {
    /// The shape in which an array is joined.
    raise: fn(&[i64]) -> Shape,
    /// The axis, by the number of axes.
    axis: fn(usize) -> usize,
}

impl Join {
    fn raised(self, view: &View) -> View {
        view.reshaped((self.raise)(view.dims()))
    }

    /// The parts of the joined array, and the arrays.
    fn parts(self, whole: &View, arrays: &[View]) -> Vec<(View, View)> {
        let axis = (self.axis)(whole.ndim());
        let raised: Vec<View> = arrays.iter().map(|view| self.raised(view)).collect();
        let parts = pieces(whole, axis, raised.iter().map(|view| view.dims()[axis]));
        parts.into_iter().zip(raised).collect()
    }

    fn infer(self, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
        if !inputs.iter().all(Shape::rank_known) {
            return Ok(false);
        }
        let (mut common, mut total) = (Shape::unknown(), 0);
        for (i, given) in inputs.iter().enumerate() {
            let mut shape = (self.raise)(given.dims());
            let axis = (self.axis)(shape.ndim());
            let extent = shape.dims().get(axis).copied().unwrap_or(-1);
            total = if total < 0 || extent < 0 { -1 } else { total + extent };
            if let Some(slot) = shape.dims_mut().get_mut(axis) {
                *slot = -1;
            }
            let before = common.clone();
            common.merge(&shape).map_err(|_| {
                let expected = format!("one that fits {before} ('?' is any extent)");
                Error::argument(&format!("arg{i}"), "shape", given, expected)
            })?;
        }
        let axis = (self.axis)(common.ndim());
        common.dims_mut()[axis] = total;
        assign_shape(&mut outputs[0], "output", &common)?;
        Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
    }
}

fn at_least(rank: usize) -> fn(&[i64]) -> Shape {
    match rank {
        1 => |dims| if dims.is_empty() { Shape::from([1]) } else { Shape::new(dims) },
        2 => |dims| match dims {
            [] => Shape::from([1, 1]),
            [n] => Shape::from([1, *n]),
            _ => Shape::new(dims),
        },
        _ => |dims| match dims {
            [] => Shape::from([1, 1, 1]),
            [n] => Shape::from([1, *n, 1]),
            [m, n] => Shape::from([*m, *n, 1]),
            _ => Shape::new(dims),
        },
    }
}

fn numbered(name: &'static str) -> impl Fn(&Attrs) -> Vec<String> + Send + Sync + Clone + 'static {
    move |attrs| {
        let count = match attrs.value("num_args") {
            Some(Value::Int(n)) => *n,
            _ => 0,
        };
        (0..count).map(|i| format!("{name}{i}")).collect()
    }
}

fn joining<P: ParamStruct>(name: &str, inputs: &'static str, join: Join) -> [OpDef; 2] {
    let back = name.replace("_npi_", "_backward_np_");
    let forward = OpDef::new::<P>(name)
        .variadic("num_args", "The arrays.")
        .input_names_by(numbered(inputs))
        .infer_shape(move |_, inputs, outputs| join.infer(inputs, outputs))
        .infer_type(same_type)
        .gradient(Gradient::use_none(&back))
        .kernel(kernel(move |call| {
            for (part, array) in join.parts(&call.outputs[0], call.inputs) {
                copy_views(&array, &part);
            }
            Ok(())
        }));
    let backward = OpDef::new::<P>(&back).kernel(kernel(move |call| {
        let parts = join.parts(&call.inputs[0], call.outputs);
        for ((part, array), req) in parts.into_iter().zip(call.req) {
            if *req != OpReq::Null {
                copy_views(&part, &array);
            }
        }
        Ok(())
    }));
    [forward, backward]
}

fn joins() -> Vec<OpDef> {
    let notes = "All other extents agree, and the dtypes.";
    let described = |[forward, backward]: [OpDef; 2], what: &str, example: &str| {
        [forward.doc(&text(what, notes, example)), backward]
    };
    let vertical = Join { raise: at_least(2), axis: |_| 0 };
    let horizontal = Join { raise: at_least(1), axis: |rank| usize::from(rank > 1) };
    let deep = Join { raise: at_least(3), axis: |_| 2 };
    let columns = Join {
        raise: |dims| match dims {
            [] => Shape::from([1, 1]),
            [n] => Shape::from([*n, 1]),
            _ => Shape::new(dims),
        },
        axis: |_| 1,
    };
    let [hstack, hstack_back] = described(
        joining::<CountAndDimParam>("_npi_hstack", "data", horizontal),
        "The arrays one after the other along the second axis, vectors along their only one.",
        "_npi_hstack(nd.array([1, 2]), nd.array([3]))\n[1. 2. 3.]",
    );
    let [dstack, dstack_back] = described(
        joining::<CountAndDimParam>("_npi_dstack", "data", deep),
        "The arrays one after the other along the third axis; a vector is one row, a matrix one \
         layer.",
        "_npi_dstack(nd.array([1, 2]), nd.array([3, 4]))\n[[[1. 3.]\n  [2. 4.]]]",
    );
    let mut all =
        vec![hstack.outputs_are(&["out"]), hstack_back, dstack.outputs_are(&["out"]), dstack_back];
    all.extend(described(
        joining::<CountParam>("_npi_vstack", "arg", vertical),
        "The arrays one below the other, along the first axis; a vector is a row.",
        "_npi_vstack(nd.array([1, 2]), nd.array([3, 4]))\n[[1. 2.]\n [3. 4.]]",
    ));
    all.extend(described(
        joining::<CountParam>("_npi_column_stack", "arg", columns),
        "Vectors and matrices one beside the other, along the second axis; a vector is a column.",
        "_npi_column_stack(nd.array([1, 2]), nd.array([3, 4]))\n[[1. 3.]\n [2. 4.]]",
    ));
    all
}

fn with_axes(rank: usize) -> OpDef {
    let raise = at_least(rank);
    let name = format!("_np_atleast_{rank}d");
    let shown = match rank {
        1 => "(1,)",
        2 => "(1, 1)",
        _ => "(1, 1, 1)",
    };
    let example = format!("{name}(nd.array([5]), nd.ones((1, 2, 3)))[0].shape\n{shown}");
    let what = format!("The arrays, each with axes of extent 1 added up to {rank}.");
    OpDef::new::<CountParam>(&name)
        .variadic("num_args", "The arrays.")
        .input_names_by(numbered("ary"))
        .output_names_by(numbered("output"))
        .doc(&text(&what, "Any dtypes.", &example))
        .infer_shape(move |_, inputs, outputs| {
            for (from, to) in inputs.iter().zip(&mut *outputs) {
                if from.rank_known() {
                    assign_shape(to, "output", &raise(from.dims()))?;
                }
            }
            Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
        })
        .infer_type(|_, inputs, outputs| {
            for (from, to) in inputs.iter_mut().zip(&mut *outputs) {
                same_type_of(from, to)?;
            }
            Ok(inputs.iter().all(Option::is_some))
        })
        .gradient(Gradient::rule_reading(&[], |builder, node| {
            let mut grads = Vec::new();
            for (i, &input) in node.inputs.iter().enumerate() {
                grads.push(match node.needed[i] {
                    true => {
                        let g = node.out_grad(builder, i)?;
                        Some(builder.op("reshape_like", "", &[], &[g, input])?[0])
                    }
                    false => None,
                });
            }
            Ok(grads)
        }))
        .kernel(kernel(|call| {
            for ((from, to), req) in call.inputs.iter().zip(call.outputs).zip(call.req) {
                if *req != OpReq::Null {
                    crate::kernels::copy::copy(from, to);
                }
            }
            Ok(())
        }))
}

type Type = Option<crate::dtype::DType>;

fn same_type_of(from: &mut Type, to: &mut Type) -> Result<()> {
    crate::operator::infer::one_type(&mut [
        ("input", std::slice::from_mut(from)),
        ("output", std::slice::from_mut(to)),
    ])
    .map(|_| ())
}

/// The parameters of `_split_v2` along this axis.
fn along(p: &SplitV2Param, axis: i64) -> Vec<(&'static str, Value)> {
    vec![
        ("indices", p.indices.to_value()),
        ("axis", Value::Int(axis)),
        ("squeeze_axis", Value::Bool(p.squeeze_axis)),
        ("sections", Value::Int(p.sections.into())),
    ]
}

/// A vector as a row.
fn row(view: &View) -> View {
    match view.dims() {
        [n] => view.reshaped(Shape::from([1, *n])),
        _ => view.clone(),
    }
}

fn splits(registry: &Registry) -> Vec<OpDef> {
    let notes =
        "At ``indices``, of which the first is 0, or into ``sections`` equal parts. Any dtype.";
    let split = original(registry, "_split_v2");
    let deep = split.renamed("_npi_dsplit").taking(|p: &SplitV2Param| Ok(along(p, 2))).doc(&text(
        "The array cut along the third axis.",
        notes,
        "_npi_dsplit(nd.ones((1, 2, 4)), indices=(0, 1), axis=2)[1].shape\n(1, 2, 3)",
    ));
    let infer = split.infer_shape.clone();
    let run: NativeFn = super::on_host(&split);
    let mut wide = split
        .renamed("_npi_hsplit")
        .taking(|p: &SplitV2Param| Ok(along(p, 1)))
        .doc(&text(
            "The array cut along the second axis, a vector along its only one.",
            notes,
            "_npi_hsplit(nd.array([1, 2, 3]), indices=(0, 1), axis=1)[1]\n[2. 3.]",
        ))
        .infer_shape(move |attrs, inputs, outputs| {
            let Some(infer) = &infer else { return Ok(false) };
            let &[n] = inputs[0].dims() else { return infer(attrs, inputs, outputs) };
            let (mut one, mut cut) = ([Shape::from([1, n])], vec![Shape::unknown(); outputs.len()]);
            infer(attrs, &mut one, &mut cut)?;
            for (to, from) in outputs.iter_mut().zip(&cut).filter(|(_, from)| from.rank_known()) {
                assign_shape(to, "output", &Shape::new(&from.dims()[1..]))?;
            }
            Ok(inputs[0].is_known() && outputs.iter().all(Shape::is_known))
        })
        .gradient(Gradient::use_none("_backward_npi_hsplit"));
    wide.kernels = vec![Arc::new(kernel(move |call: &Call<'_>| {
        run(&Call { inputs: &[row(&call.inputs[0])], ..*call })
    }))];
    let back = original(registry, "_backward_split_v2");
    let run = super::on_host(&back);
    let mut back = back.renamed("_backward_npi_hsplit");
    back.kernels = vec![Arc::new(kernel(move |call: &Call<'_>| {
        run(&Call { outputs: &[row(&call.outputs[0])], ..*call })
    }))];
    vec![deep, wide, back]
}

pub fn operators(registry: &Registry) -> Vec<OpDef> {
    let mut all = joins();
    all.extend([1, 2, 3].map(with_axes));
    all.extend(splits(registry));
    all
}
