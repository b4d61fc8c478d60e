//! Calibration: `_contrib_calibrate_entropy`, which chooses a range for 8-bit integers by a
//! histogram, and `_contrib_quantize_asym`, integers with an offset.

use super::ranges::{map, range_shapes};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::int8::convert::{ToUnits, extremes};
use crate::kernels::parallel::parallel_for;
use crate::operator::infer::{assign_shape, assign_type, elementwise_shape};
use crate::operator::{Call, Gradient, Kernel, OpDef, OpReq};
use crate::params;
use crate::shape::Shape;
use std::sync::Mutex;

params! {
    /// Parameters of `_contrib_calibrate_entropy`.
    pub struct EntropyParam {
        num_quantized_bins: i32, default(255).ge(1.0), "Number of levels of the integers.";
    }
}

params! {
    /// Parameters of `_contrib_quantize_asym`.
    pub struct AsymmetricParam {
        min_calib_range: Option<f32>, default(None), "The least number expected; None takes it \
                                                      from the data.";
        max_calib_range: Option<f32>, default(None), "The greatest number expected; None takes it \
                                                      from the data.";
    }
}

const ENTROPY: &str = r#"
The range ``(-threshold, threshold)`` whose quantisation loses the least of a distribution, given as
a histogram around 0: of all thresholds at edges, the one with the least Kullback-Leibler
divergence.

Notes
-----
hist ``(n,)`` with an odd n, hist_edges ``(n + 1,)``, float32. Outputs: threshold and divergence,
each ``(1,)``. Numbers outside of a range count at its ends. An even number of bins, or fewer than
``num_quantized_bins``, is an error. Source: S. Migacz, 8-bit inference with TensorRT, 2017.

Examples
--------
>>> edges = nd.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
>>> threshold, divergence = nd.contrib.calibrate_entropy(nd.array([0, 1, 4, 1, 0]), edges,
...     num_quantized_bins=3)
>>> threshold.asnumpy().tolist()
[1.5]
"#;

const ASYM: &str = r#"
Real numbers as uint8 with an offset: ``q = round(x * scale + shift)``, clipped to 0 to 255, where
``scale = 255 / (max - min)`` and ``shift = -min * scale``.

Notes
-----
The range is that of the parameters if both are given, else that of the data, widened to include 0.
Any shape, float32. Outputs: the integers, and ``scale`` and ``shift``, each ``(1,)`` and float32.
Where all numbers are 0 the scale is 1.

Examples
--------
>>> q, scale, shift = nd.contrib.quantize_asym(nd.array([-1, 0, 4]))
>>> q.asnumpy().tolist(), shift.asnumpy().tolist()
([0, 51, 255], [51.0])
"#;

/// What keeps a logarithm finite where a distribution is 0.
const EPSILON: f64 = 1e-4;

/// Moves a little of what is there to where nothing is; `None` if there is too little.
fn smoothed(p: &[f64]) -> Option<Vec<f64>> {
    let zeros = p.iter().filter(|&&x| x == 0.0).count();
    let others = p.len() - zeros;
    if others == 0 {
        return None;
    }
    let taken = EPSILON * zeros as f64 / others as f64;
    (taken < 1.0).then(|| p.iter().map(|&x| if x == 0.0 { EPSILON } else { x - taken }).collect())
}

/// The divergence of the distribution in the middle `2 half + 1` bins from its quantisation.
fn divergence(hist: &[f64], half: usize, levels: usize) -> f64 {
    let middle = hist.len() / 2;
    let (start, end) = (middle - half, middle + half + 1);
    let inside = &hist[start..end];
    let mut p = inside.to_vec();
    let last = p.len() - 1;
    p[0] += hist[..start].iter().sum::<f64>();
    p[last] += hist[end..].iter().sum::<f64>();
    let width = inside.len() / levels;
    let mut q = vec![0.0; p.len()];
    for level in 0..levels {
        let from = level * width;
        let to = if level + 1 == levels { inside.len() } else { from + width };
        let filled = inside[from..to].iter().filter(|&&x| x != 0.0).count();
        if filled > 0 {
            let mean = inside[from..to].iter().sum::<f64>() / filled as f64;
            for i in (from..to).filter(|&i| p[i] != 0.0) {
                q[i] = mean;
            }
        }
    }
    let (Some(p), Some(q)) = (smoothed(&p), smoothed(&q)) else { return f64::INFINITY };
    let (sum_p, sum_q) = (p.iter().sum::<f64>(), q.iter().sum::<f64>());
    let terms = p.iter().zip(&q).filter(|(p, _)| **p > 0.0);
    terms.map(|(p, q)| p / sum_p * ((p / sum_p) / (q / sum_q)).ln()).sum()
}

fn calibrate(call: &Call<'_>) -> Result<()> {
    let levels = call.attrs.get::<EntropyParam>().num_quantized_bins as usize;
    // SAFETY: inference gave the inputs this dtype; they are not written meanwhile.
    let (hist, edges) = unsafe { (call.inputs[0].slice::<f32>(), call.inputs[1].slice::<f32>()) };
    let hist: Vec<f64> = hist.iter().map(|&x| f64::from(x)).collect();
    let (middle, first) = (hist.len() / 2, levels / 2);
    let found = Mutex::new(vec![f64::INFINITY; middle - first + 1]);
    parallel_for(middle - first + 1, 8, |range| {
        for i in range {
            let lost = divergence(&hist, first + i, levels);
            if let Ok(mut found) = found.lock() {
                found[i] = lost;
            }
        }
    });
    let found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (at, least) = (found.iter().enumerate())
        .min_by(|a, b| a.1.total_cmp(b.1))
        .map_or((middle - first, f64::INFINITY), |(at, least)| (at, *least));
    let threshold = edges[middle + first + at + 1];
    for (i, value) in [(0, threshold), (1, least as f32)] {
        if call.req[i] != OpReq::Null {
            // SAFETY: inference gave the output one float32 element, which is ours to write.
            unsafe { call.outputs[i].slice_mut::<f32>()[0] = value };
        }
    }
    Ok(())
}

fn asymmetric(call: &Call<'_>) -> Result<()> {
    let p: &AsymmetricParam = call.attrs.get();
    let x = &call.inputs[0];
    let (min, max) = match (p.min_calib_range, p.max_calib_range) {
        (Some(min), Some(max)) => (min, max),
        _ => {
            // SAFETY: inference gave the input this dtype; it is not written meanwhile.
            let found = unsafe { extremes(x.as_ptr::<f32>(), x.size()) };
            found.map_or((0.0, 0.0), |[min, max]| (min.min(0.0), max.max(0.0)))
        }
    };
    let (min, max) = (f64::from(min), f64::from(max));
    if min > max {
        return Err(Error::invalid("min_calib_range", min, format!("at most {max}")));
    }
    let scale = if max > min { 255.0 / (max - min) } else { 1.0 };
    let shift = -min * scale;
    if call.req[0] != OpReq::Null {
        map::<f32, u8>(x, &call.outputs[0], ToUnits { factor: scale, shift });
    }
    for (i, value) in [(1, scale), (2, shift)] {
        if call.req[i] != OpReq::Null {
            // SAFETY: inference gave the output one float32 element, which is ours to write.
            unsafe { call.outputs[i].slice_mut::<f32>()[0] = value as f32 };
        }
    }
    Ok(())
}

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<EntropyParam>("_contrib_calibrate_entropy")
            .doc(ENTROPY)
            .inputs_are(&[("hist", "Counts."), ("hist_edges", "The edges of the bins.")])
            .outputs_are(&["threshold", "divergence"])
            .infer_shape(|attrs, inputs, outputs| {
                range_shapes(outputs, &["threshold", "divergence"])?;
                let Some(&bins) = inputs[0].dims().first().filter(|_| inputs[0].is_known()) else {
                    return Ok(false);
                };
                let levels = i64::from(attrs.get::<EntropyParam>().num_quantized_bins);
                if inputs[0].ndim() != 1 || bins % 2 == 0 || bins < levels {
                    let expected = format!("one axis of an odd extent, at least {levels}");
                    return Err(Error::argument("hist", "shape", &inputs[0], expected));
                }
                assign_shape(&mut inputs[1], "hist_edges", &Shape::new(&[bins + 1]))?;
                Ok(true)
            })
            .infer_type(|_, inputs, outputs| {
                for (slot, name) in inputs.iter_mut().zip(["hist", "hist_edges"]) {
                    assign_type(slot, name, DType::F32)?;
                }
                for (slot, name) in outputs.iter_mut().zip(["threshold", "divergence"]) {
                    assign_type(slot, name, DType::F32)?;
                }
                Ok(true)
            })
            .gradient(Gradient::Zero)
            .kernel(Kernel::cpu(calibrate).skips_null()),
        OpDef::new::<AsymmetricParam>("_contrib_quantize_asym")
            .doc(ASYM)
            .inputs_are(&[("data", "Real numbers.")])
            .outputs_are(&["output", "scale", "shift"])
            .infer_shape(|attrs, inputs, outputs| {
                range_shapes(&mut outputs[1..], &["scale", "shift"])?;
                elementwise_shape(attrs, inputs, &mut outputs[..1])
            })
            .infer_type(|_, inputs, outputs| {
                assign_type(&mut inputs[0], "data", DType::F32)?;
                assign_type(&mut outputs[0], "output", DType::U8)?;
                assign_type(&mut outputs[1], "scale", DType::F32)?;
                assign_type(&mut outputs[2], "shift", DType::F32)?;
                Ok(true)
            })
            .gradient(Gradient::Zero)
            .kernel(Kernel::cpu(asymmetric).skips_null()),
    ]
}
