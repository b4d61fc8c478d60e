//! Elements and slices by coordinates: `gather_nd`, `scatter_nd`, its sum `_backward_gather_nd`,
//! and `_scatter_set_nd`.

use super::super::common::{all_known, copy_view, first_type, wanted, zero_view};
use super::super::kernel;
use super::{ShapeParam, copy_run, index_at, position, text};
use crate::error::{Error, Result};
use crate::kernels::scatter::add_runs;
use crate::operator::infer::assign_shape;
use crate::operator::{Attrs, Call, Dep, Gradient, InplacePair, OpDef};
use crate::shape::Shape;
use crate::tensor::View;

/// Calls `f(first element of the slice, number of the slice, its length)` for each column of
/// coordinates.
fn for_coordinates(
    whole: &Shape,
    indices: &View,
    mut f: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let m = indices.dims()[0] as usize;
    let n = indices.shape().product(1..indices.ndim());
    let strides = whole.strides();
    let length = whole.product(m..whole.ndim());
    for k in 0..n {
        let mut at = 0;
        for axis in 0..m {
            let (index, extent) = (index_at(indices, axis * n + k), whole.dims()[axis]);
            if !(-extent..extent).contains(&index) {
                return Err(Error::index(format!(
                    "index {index} is out of bounds for axis {axis} of shape {whole}"
                )));
            }
            at += position(index, extent, true) * strides[axis];
        }
        f(at as usize, k, length);
    }
    Ok(())
}

/// The shape of the slices that the coordinates name.
fn gathered(whole: &Shape, indices: &Shape) -> Result<Shape> {
    let m = indices.dims().first().copied().unwrap_or(0);
    if m < 1 || m as usize > whole.ndim() {
        return Err(Error::argument(
            "indices",
            "shape",
            indices,
            format!("1 to {} rows of coordinates", whole.ndim()),
        ));
    }
    Ok(indices.dims()[1..].iter().chain(&whole.dims()[m as usize..]).copied().collect())
}

fn gather_nd() -> OpDef {
    let doc = text(
        "Elements or slices of the data by coordinates: column ``k`` of ``indices`` names one.",
        "``indices`` has the shape ``(M, ...)`` with ``M`` coordinates on its first axis, any \
         dtype; negative ones count from the end. The gradient of an element named several times \
         is the sum. An index outside is an error.",
        "nd.gather_nd(nd.array([[1, 2], [3, 4]]), nd.array([[1, 0], [0, 1]]))\n[3. 2.]",
    );
    OpDef::plain("gather_nd")
        .aliases(&["_npi_gather_nd", "_npx_gather_nd"])
        .doc(&doc)
        .inputs_are(&[("data", "The data."), ("indices", "Coordinates.")])
        .infer_shape(|_, inputs, outputs| {
            if inputs[0].is_known() && inputs[1].is_known() {
                let out = gathered(&inputs[0], &inputs[1])?;
                assign_shape(&mut outputs[0], "output", &out)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(first_type)
        .gradient(Gradient::declared("_backward_gather_nd_grad", |_, _, _| {
            vec![Dep::OutGrad(0), Dep::Input(1)]
        }))
        .kernel(kernel(|call| {
            let x = &call.inputs[0];
            for_coordinates(x.shape(), &call.inputs[1], |at, k, n| {
                copy_run(x, at, &call.outputs[0], k * n, n)
            })
        }))
}

/// Sets `to` to 0, and adds the slices of `from` at the coordinates.
fn scatter_sums(from: &View, indices: &View, to: &View) -> Result<()> {
    let length = to.shape().product(indices.dims()[0] as usize..to.ndim());
    let mut places = Vec::new();
    for_coordinates(to.shape(), indices, |at, _, length| places.push(at / length.max(1)))?;
    add_runs(&places, length, from, to);
    Ok(())
}

fn gather_nd_backward() -> OpDef {
    OpDef::plain("_backward_gather_nd_grad").kernel(kernel(|call| {
        if wanted(call, 1) {
            zero_view(&call.outputs[1]);
        }
        if !wanted(call, 0) {
            return Ok(());
        }
        scatter_sums(&call.inputs[0], &call.inputs[1], &call.outputs[0])
    }))
}

/// Writes slices of `from` to output 0 at the coordinates.
fn scatter(call: &Call<'_>, from: &View, indices: &View) -> Result<()> {
    let out = &call.outputs[0];
    for_coordinates(out.shape(), indices, |at, k, n| copy_run(from, k * n, out, at, n))
}

fn scatter_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let shape = Shape::new(&attrs.get::<ShapeParam>().shape);
    assign_shape(&mut outputs[0], "output", &shape)?;
    if inputs[1].is_known() {
        let part = gathered(&shape, &inputs[1])?;
        assign_shape(&mut inputs[0], "data", &part)?;
    }
    Ok(all_known(inputs, outputs))
}

/// The gradient of data that was put at coordinates: what stands there.
fn gathered_gradient() -> Gradient {
    Gradient::rule(|builder, node| {
        let grad = node.out_grad(builder, 0)?;
        Ok(vec![Some(builder.op("gather_nd", "", &[], &[grad, node.inputs[1]])?[0]), None])
    })
}

fn scattering(name: &str) -> OpDef {
    OpDef::new::<ShapeParam>(name)
        .inputs_are(&[("data", "The elements or slices."), ("indices", "Coordinates.")])
        .infer_shape(scatter_shape)
        .infer_type(first_type)
        .gradient(gathered_gradient())
}

fn scatter_nd() -> OpDef {
    let doc = text(
        "Zeros of a shape, with the data put at coordinates: the opposite of ``gather_nd``.",
        "Of several elements for one place the last wins; ``_backward_gather_nd`` adds them up. An \
         index outside is an error.",
        "nd.scatter_nd(nd.array([5]), nd.array([[2]]), shape=(4,))\n[0. 0. 5. 0.]",
    );
    scattering("scatter_nd").doc(&doc).kernel(kernel(|call| {
        zero_view(&call.outputs[0]);
        scatter(call, &call.inputs[0], &call.inputs[1])
    }))
}

fn scatter_sums_nd() -> OpDef {
    let doc = text(
        "Zeros of a shape, with the data added at coordinates: sums where ``scatter_nd`` has the \
         last.",
        "Any number; its gradient is ``gather_nd``. An index outside is an error.",
        "nd._internal._backward_gather_nd(nd.array([5, 7]), nd.array([[2, 2]]), \
         shape=(4,))\n[ 0.  0. 12.  0.]",
    );
    let mut def = scattering("_backward_gather_nd")
        .doc(&doc)
        .kernel(kernel(|call| scatter_sums(&call.inputs[0], &call.inputs[1], &call.outputs[0])));
    def.is_backward = false; // whatever its name says: programs call it
    def
}

fn scatter_set_nd() -> OpDef {
    OpDef::new::<ShapeParam>("_scatter_set_nd")
        .aliases(&["_npi_scatter_set_nd"])
        .doc(&text(
            "``lhs`` with the elements or slices at coordinates replaced by ``rhs``.",
            "Used by setting items. An index outside is an error.",
            "nd._internal._scatter_set_nd(nd.zeros((3,)), nd.array([5]), nd.array([[1]]), \
             shape=(3,))\n[0. 5. 0.]",
        ))
        .inputs_are(&[
            ("lhs", "The array."),
            ("rhs", "The new elements."),
            ("indices", "Coordinates."),
        ])
        .infer_shape(|_, inputs, outputs| {
            let lhs = inputs[0].clone();
            assign_shape(&mut outputs[0], "output", &lhs)?;
            if lhs.is_known() && inputs[2].is_known() {
                let part = gathered(&lhs, &inputs[2])?;
                assign_shape(&mut inputs[1], "rhs", &part)?;
            }
            Ok(all_known(inputs, outputs))
        })
        .infer_type(first_type)
        .inplace(&[InplacePair::new(0, 0)])
        .gradient(Gradient::rule_reading(&[Dep::Input(2)], |builder, node| {
            let (grad, indices) = (node.out_grad(builder, 0)?, node.inputs[2]);
            let rhs = builder.op("gather_nd", "", &[], &[grad, indices])?[0];
            let zeros = builder.op("zeros_like", "", &[], &[rhs])?[0];
            let shape: Vec<_> =
                node.attrs.value("shape").cloned().map(|s| ("shape", s)).into_iter().collect();
            let lhs = builder.op("_scatter_set_nd", "", &shape, &[grad, zeros, indices])?[0];
            Ok(vec![Some(lhs), Some(rhs), None])
        }))
        .kernel(kernel(|call| {
            copy_view(&call.inputs[0], &call.outputs[0]);
            scatter(call, &call.inputs[1], &call.inputs[2])
        }))
}

pub fn operators() -> Vec<OpDef> {
    vec![gather_nd(), gather_nd_backward(), scatter_nd(), scatter_sums_nd(), scatter_set_nd()]
}
