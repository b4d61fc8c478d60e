//! Variances, weighted averages and percentiles over axes. Calculated in float64.

use super::{kernel, only, room, text, zeros};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::operator::infer::{assign_shape, assign_type, same_type};
use crate::operator::{Attrs, Call, Dep, Gradient, OpDef, OpReq, Registry, Tuple};
use crate::ops::tensor::common::axis_flags;
use crate::shape::Shape;
use crate::tensor::View;
use crate::{param_enum, params, with_dtype};

params! {
    /// Parameters of `_npi_var` and `_npi_std`.
    pub struct VarParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None is all of them.";
        dtype: Option<DType>, default(None), "The dtype of the output; None is that of the input.";
        ddof: i32, default(0), "What is subtracted from the number of elements.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
    }
}

params! {
    /// Parameters of `_npi_average`.
    pub struct AverageParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None is all of them.";
        returned: bool, default(false), "Also give the sum of the weights.";
        weighted: bool, default(true), "Are there weights?";
    }
}

param_enum! {
    /// What stands for a percentile between two elements.
    pub enum Between {
        Higher = "higher", Linear = "linear", Lower = "lower", Midpoint = "midpoint",
        Nearest = "nearest",
    }
}

params! {
    /// Parameters of `_npi_percentile`.
    pub struct PercentileParam {
        axis: Option<Tuple>, default(None), "Axes to reduce; None is all of them.";
        interpolation: Between, default(Between::Linear), "What stands for a percentile between \
                                                           two elements.";
        keepdims: bool, default(false), "Keep reduced axes with extent 1.";
        q_scalar: Option<f64>, default(None), "The percentile, if there is no array of them.";
    }
}

/// The elements of an array of any dtype.
pub(super) fn numbers(view: &View) -> Result<Vec<f64>> {
    let mut all = room(view.size())?;
    with_dtype!(view.dtype(), T => {
        // SAFETY: inputs are not written meanwhile.
        all.extend(unsafe { view.slice::<T>() }.iter().map(|x| x.to_f64()));
    });
    Ok(all)
}

/// Writes the elements of an output, if it is wanted.
pub(super) fn store(call: &Call<'_>, i: usize, values: &[f64]) {
    let to = &call.outputs[i];
    if call.req[i] == OpReq::Null {
        return;
    }
    with_dtype!(to.dtype(), T => {
        // SAFETY: the output is ours to write.
        let to = unsafe { to.slice_mut::<T>() };
        to.iter_mut().zip(values).for_each(|(to, value)| *to = T::from_f64(*value));
    });
}

fn flags(axis: &Option<Tuple>, of: &Shape) -> Result<Vec<bool>> {
    axis.as_ref().map_or_else(|| Ok(vec![true; of.ndim()]), |axes| axis_flags(axes, of))
}

/// The extents that stay, with 1 for the others if `keeps`.
fn kept(of: &Shape, flags: &[bool], keeps: bool) -> impl Iterator<Item = i64> {
    let extents = of.dims().iter().zip(flags);
    extents.filter_map(move |(&d, &gone)| match gone {
        true => keeps.then_some(1),
        false => Some(d),
    })
}

/// For each element the number of its group: of those that are reduced to one.
fn groups(dims: &[i64], flags: &[bool]) -> Result<Vec<usize>> {
    let mut places = vec![0usize];
    for (&extent, &gone) in dims.iter().zip(flags) {
        let n = extent as usize;
        let next = |at: usize, i: usize| if gone { at } else { at * n + i };
        let mut finer = room(places.len() * n)?;
        finer.extend(places.iter().flat_map(|at| (0..n).map(move |i| next(*at, i))));
        places = finer;
    }
    Ok(places)
}

/// The elements with the groups that they are in, and the mean and the size of each group.
struct Grouped {
    values: Vec<f64>,
    groups: Vec<usize>,
    means: Vec<f64>,
    size: f64,
}

impl Grouped {
    fn of(x: &View, axis: &Option<Tuple>) -> Result<Grouped> {
        let flags = flags(axis, x.shape())?;
        let (values, groups) = (numbers(x)?, groups(x.dims(), &flags)?);
        let count: i64 = kept(x.shape(), &flags, false).product();
        let size = (x.size() as f64) / (count.max(1) as f64);
        let means = sums(&values, &groups, count as usize)?;
        let means = means.iter().map(|sum| sum / size).collect();
        Ok(Grouped { values, groups, means, size })
    }

    /// The variance of each group.
    fn variances(&self, ddof: i32) -> Result<Vec<f64>> {
        let mut all = zeros(self.means.len())?;
        self.offsets().zip(&self.groups).for_each(|(d, group)| all[*group] += d * d);
        all.iter_mut().for_each(|sum| *sum /= self.size - f64::from(ddof));
        Ok(all)
    }

    /// How far the elements are from their means.
    fn offsets(&self) -> impl Iterator<Item = f64> {
        self.values.iter().zip(&self.groups).map(|(x, group)| x - self.means[*group])
    }
}

/// The sum of each group.
fn sums(values: &[f64], groups: &[usize], count: usize) -> Result<Vec<f64>> {
    let mut sums = zeros(count)?;
    values.iter().zip(groups).for_each(|(x, group)| sums[*group] += x);
    Ok(sums)
}

/// `g` of the group times `2 (x - mean) / (n - ddof)`, of a deviation divided by twice itself.
fn var_backward(call: &Call<'_>, root: bool) -> Result<()> {
    let p = call.attrs.get::<VarParam>();
    let x = Grouped::of(&call.inputs[1], &p.axis)?;
    let (g, n) = (numbers(&call.inputs[0])?, x.size - f64::from(p.ddof));
    let factors: Vec<f64> = match root {
        true => g.iter().zip(x.variances(p.ddof)?).map(|(g, v)| g / v.sqrt()).collect(),
        false => g.iter().map(|g| 2.0 * g).collect(),
    };
    let mut grads = room(x.values.len())?;
    grads.extend(x.offsets().zip(&x.groups).map(|(d, group)| factors[*group] * d / n));
    store(call, 0, &grads);
    Ok(())
}

fn deviations() -> Vec<OpDef> {
    let rows = [
        (
            "_npi_var",
            "var",
            "variance: the mean square of the distances from the mean",
            "1.0",
            false,
        ),
        ("_npi_std", "std", "standard deviation: the root of the variance", "1.0", true),
    ];
    let both = rows.map(|(name, output, what, shown, root)| {
        let back = format!("_backward{name}");
        let example = format!("{name}(nd.array([1, 3])).asscalar().item()\n{shown}");
        let def = OpDef::new::<VarParam>(name)
            .inputs_are(&[("a", "The array.")])
            .outputs_are(&[output])
            .doc(&text(
                &format!("The {what}, over the given axes."),
                "The sum of squares is divided by the number of elements less ``ddof``. Without \
                 axes all are reduced, to shape ``()``. The dtype is that of the input or \
                 ``dtype``; integers are truncated.",
                &example,
            ))
            .infer_shape(|attrs, inputs, outputs| {
                let p = attrs.get::<VarParam>();
                if inputs[0].rank_known() {
                    let flags = flags(&p.axis, &inputs[0])?;
                    let shape: Shape = kept(&inputs[0], &flags, p.keepdims).collect();
                    assign_shape(&mut outputs[0], "output", &shape)?;
                }
                Ok(inputs[0].is_known() && outputs[0].is_known())
            })
            .infer_type(|attrs, inputs, outputs| match attrs.get::<VarParam>().dtype {
                None => same_type(attrs, inputs, outputs),
                Some(dtype) => {
                    assign_type(&mut outputs[0], "output", dtype)?;
                    Ok(inputs[0].is_some())
                }
            })
            .gradient(Gradient::use_in(&back))
            .kernel(kernel(move |call| {
                let p = call.attrs.get::<VarParam>();
                let mut all = Grouped::of(&call.inputs[0], &p.axis)?.variances(p.ddof)?;
                if root {
                    all.iter_mut().for_each(|v| *v = v.sqrt());
                }
                store(call, 0, &all);
                Ok(())
            }));
        let def = only(def, |dtype| dtype != DType::Bool, "a number, not bool");
        let back = OpDef::new::<VarParam>(&back);
        let back = back.kernel(kernel(move |call| var_backward(call, root)));
        vec![def, back]
    });
    both.concat()
}

/// The axis along which an average has weights; `None` if each element has its own.
fn weighted_axis(p: &AverageParam, a: &Shape, weights: &Shape) -> Result<Option<usize>> {
    if a == weights {
        return Ok(None);
    }
    match (p.axis.as_deref(), weights.dims()) {
        (Some(&[axis]), &[n]) if a.dims()[a.axis(axis)?] == n => a.axis(axis).map(Some),
        _ => {
            let expected = format!("{a}, or with one axis the extent of that axis");
            Err(Error::argument("weights", "shape", weights, expected))
        }
    }
}

/// The weights of an average: for each element the number of its own.
fn weights_of(p: &AverageParam, a: &Shape, weights: &Shape) -> Result<Vec<usize>> {
    let axis = weighted_axis(p, a, weights)?;
    let flags: Vec<bool> = (0..a.ndim()).map(|i| axis.is_some_and(|axis| i != axis)).collect();
    groups(a.dims(), &flags)
}

fn average_shape(attrs: &Attrs, inputs: &mut [Shape], outputs: &mut [Shape]) -> Result<bool> {
    let p = attrs.get::<AverageParam>();
    if !inputs.iter().all(Shape::is_known) {
        return Ok(false);
    }
    let flags = flags(&p.axis, &inputs[0])?;
    let shape: Shape = kept(&inputs[0], &flags, false).collect();
    assign_shape(&mut outputs[0], "output0", &shape)?;
    let one = match inputs.get(1) {
        None => true,
        Some(weights) => weighted_axis(p, &inputs[0], weights)?.is_some(),
    };
    assign_shape(&mut outputs[1], "output1", &if one { Shape::new(&[]) } else { shape })?;
    Ok(true)
}

/// Elements, their weights, and for each group the weighted sum and the sum of weights.
struct Weighted {
    values: Vec<f64>,
    weights: Vec<f64>,
    groups: Vec<usize>,
    /// The number of each element's weight.
    own: Vec<usize>,
    averages: Vec<f64>,
    scales: Vec<f64>,
}

impl Weighted {
    fn of(p: &AverageParam, inputs: &[View]) -> Result<Weighted> {
        let a = &inputs[0];
        let flags = flags(&p.axis, a.shape())?;
        let (values, groups) = (numbers(a)?, groups(a.dims(), &flags)?);
        let count = kept(a.shape(), &flags, false).product::<i64>() as usize;
        let (weights, own) = match inputs.get(1) {
            None => (vec![1.0], vec![0; values.len()]),
            Some(weights) => (numbers(weights)?, weights_of(p, a.shape(), weights.shape())?),
        };
        let mut each = room(own.len())?;
        each.extend(own.iter().map(|i| weights[*i]));
        let scales = sums(&each, &groups, count)?;
        let mut products = room(values.len())?;
        products.extend(values.iter().zip(&each).map(|(x, w)| x * w));
        let totals = sums(&products, &groups, count)?;
        let averages = totals.iter().zip(&scales).map(|(total, scale)| total / scale).collect();
        Ok(Weighted { values, weights, groups, own, averages, scales })
    }
}

/// Inputs are the output gradients and the operands.
fn average_backward(call: &Call<'_>) -> Result<()> {
    let p = call.attrs.get::<AverageParam>();
    let first = if p.returned { 2 } else { 1 };
    let all = Weighted::of(p, &call.inputs[first..])?;
    let g = numbers(&call.inputs[0])?;
    let places = || all.groups.iter().zip(&all.own);
    let slope = |group: usize| g[group] / all.scales[group];
    let mut da = room(all.values.len())?;
    da.extend(places().map(|(group, own)| slope(*group) * all.weights[*own]));
    store(call, 0, &da);
    if call.outputs.len() > 1 {
        let mut dw = vec![0.0; all.weights.len()];
        let summed = if p.returned { numbers(&call.inputs[1])? } else { vec![0.0] };
        for ((group, own), x) in places().zip(&all.values) {
            dw[*own] += slope(*group) * (x - all.averages[*group]);
        }
        // Weights of one axis have one sum, to which each contributes once.
        let spread = call.outputs[1].shape() == call.outputs[0].shape();
        if p.returned && spread {
            places().for_each(|(group, own)| dw[*own] += summed[*group]);
        } else if p.returned {
            dw.iter_mut().for_each(|d| *d += summed[0]);
        }
        store(call, 1, &dw);
    }
    Ok(())
}

fn averages() -> [OpDef; 2] {
    let def = OpDef::new::<AverageParam>("_npi_average")
        .inputs_are(&[("a", "The array."), ("weights", "Its weights, or those along one axis.")])
        .input_names_by(|attrs| {
            let names = ["a".to_owned(), "weights".to_owned()];
            names[..if attrs.get::<AverageParam>().weighted { 2 } else { 1 }].to_vec()
        })
        .outputs_are(&["output0", "output1"])
        .visible(|attrs| if attrs.get::<AverageParam>().returned { 2 } else { 1 })
        .doc(&text(
            "The weighted average over the given axes: sum(w a) / sum(w).",
            "Weights have the array's shape, or that of one axis over which is averaged; \
             ``weighted=False`` takes none. ``returned=True`` also gives sum(w), with shape ``()`` \
             unless the weights have the array's shape. One dtype, a number; integers are \
             truncated.",
            "_npi_average(nd.array([1, 2]), nd.array([3, 1])).asscalar().item()\n1.25",
        ))
        .infer_shape(average_shape)
        .infer_type(same_type)
        .gradient(Gradient::declared("_backward_np_average", |_, n_in, n_out| {
            (0..n_out).map(Dep::OutGrad).chain((0..n_in).map(Dep::Input)).collect()
        }))
        .kernel(kernel(|call| {
            let all = Weighted::of(call.attrs.get(), call.inputs)?;
            store(call, 0, &all.averages);
            // Without groups there may be one sum all the same: of the weights of one axis.
            store(call, 1, if all.scales.is_empty() { &[0.0] } else { &all.scales });
            Ok(())
        }));
    let back = OpDef::new::<AverageParam>("_backward_np_average").kernel(kernel(average_backward));
    [only(def, |dtype| dtype != DType::Bool, "a number, not bool"), back]
}

/// The percentile of values in order.
fn percentile(rising: &[f64], q: f64, between: Between) -> f64 {
    let at = q / 100.0 * (rising.len() as f64 - 1.0);
    let (low, high) = (rising[at.floor() as usize], rising[at.ceil() as usize]);
    match between {
        Between::Higher => high,
        Between::Lower => low,
        Between::Midpoint => 0.5 * (low + high),
        Between::Nearest => rising[at.round_ties_even() as usize],
        Between::Linear => low + (high - low) * at.fract(),
    }
}

fn checked(qs: &[f64]) -> Result<()> {
    match qs.iter().find(|q| !(0.0..=100.0).contains(*q)) {
        Some(q) => Err(Error::invalid("percentile", format!("{q:?}"), "0 to 100")),
        None => Ok(()),
    }
}

fn percentiles(call: &Call<'_>) -> Result<()> {
    let (p, a) = (call.attrs.get::<PercentileParam>(), &call.inputs[0]);
    let qs = match (p.q_scalar, call.inputs.get(1)) {
        (Some(q), _) => vec![q],
        (None, Some(q)) => numbers(q)?,
        (None, None) => Vec::new(),
    };
    checked(&qs)?;
    let flags = flags(&p.axis, a.shape())?;
    let count = kept(a.shape(), &flags, false).product::<i64>() as usize;
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); count];
    for (x, group) in numbers(a)?.into_iter().zip(groups(a.dims(), &flags)?) {
        rows[group].push(x);
    }
    if rows.iter().any(Vec::is_empty) {
        return Err(Error::argument("a", "shape", a.shape(), "at least one element in each row"));
    }
    rows.iter_mut().for_each(|row| row.sort_by(f64::total_cmp));
    let is_nan = |row: &Vec<f64>| row.iter().any(|x| x.is_nan());
    let one = |row: &Vec<f64>, q| match is_nan(row) {
        true => f64::NAN,
        false => percentile(row, q, p.interpolation),
    };
    let all: Vec<f64> = qs.iter().flat_map(|q| rows.iter().map(|row| one(row, *q))).collect();
    store(call, 0, &all);
    Ok(())
}

fn percentile_operator() -> OpDef {
    OpDef::new::<PercentileParam>("_npi_percentile")
        .inputs_are(&[("a", "The array."), ("q", "The percentiles, from 0 to 100.")])
        .input_names_by(|attrs| {
            let names = ["a".to_owned(), "q".to_owned()];
            let arrays = if attrs.get::<PercentileParam>().q_scalar.is_some() { 1 } else { 2 };
            names[..arrays].to_vec()
        })
        .doc(&text(
            "Percentiles over the given axes: the ``q``-th is not exceeded by ``q`` of 100 \
             elements.",
            "The output has the axes of ``q``, then those that stay. Between two elements stands \
             what ``interpolation`` says. Any dtype; the output is float64 for float64, else \
             float32. Percentiles outside of 0 to 100 are an error.",
            "_npi_percentile(nd.array([1, 2, 4]), q_scalar=75).asscalar().item()\n3.0",
        ))
        .infer_shape(|attrs, inputs, outputs| {
            let p = attrs.get::<PercentileParam>();
            checked(p.q_scalar.as_slice())?;
            if inputs.iter().all(Shape::rank_known) {
                let flags = flags(&p.axis, &inputs[0])?;
                let lead = inputs.get(1).map_or(&[][..], |q| q.dims()).iter().copied();
                let shape: Shape = lead.chain(kept(&inputs[0], &flags, p.keepdims)).collect();
                assign_shape(&mut outputs[0], "output", &shape)?;
            }
            Ok(inputs.iter().chain(&*outputs).all(Shape::is_known))
        })
        .infer_type(|_, inputs, outputs| {
            if let Some(q) = inputs.get_mut(1) {
                q.get_or_insert(DType::F32);
            }
            let Some(own) = inputs[0] else { return Ok(false) };
            let out = if own == DType::F64 { DType::F64 } else { DType::F32 };
            assign_type(&mut outputs[0], "output", out)?;
            Ok(true)
        })
        .kernel(kernel(percentiles))
}

pub fn operators(_: &Registry) -> Vec<OpDef> {
    let mut all = deviations();
    all.extend(averages());
    all.push(percentile_operator());
    all
}
