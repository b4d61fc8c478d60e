//! Distinct classes from an approximately log-uniform distribution, for sampled losses.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::parallel::{Shared, parallel_for};
use crate::kernels::random::Draws;
use crate::operator::infer::{assign_shape, assign_type};
use crate::operator::{Call, Gradient, Kernel, OpDef, ResourceRequest, Tuple};
use crate::params;
use crate::shape::Shape;
use std::collections::HashSet;

params! {
    /// Parameters of `_sample_unique_zipfian`.
    pub struct ZipfParam {
        range_max: i32, required.ge(1.0), "Number of classes.";
        shape: Option<Tuple>, default(None), "(batch, number of classes drawn for each).";
    }
}

const DOC: &str = "\
Draws distinct classes: class ``c`` with probability ``log((c + 2) / (c + 1)) / log(range_max +
1)``.

Notes
-----
Two outputs, int64: the classes ``(batch, n)``, no two in a row the same, and the number of tries
``(batch,)`` that each row took. ``n`` is at most ``range_max``. Row ``i`` depends on the seed, the
call and ``i`` only, not on threads.

Examples
--------
>>> classes, tries = nd._internal._sample_unique_zipfian(5, shape=(1, 5))
>>> sorted(classes[0].asnumpy().tolist())
[0, 1, 2, 3, 4]
";

pub fn operators() -> Vec<OpDef> {
    vec![
        OpDef::new::<ZipfParam>("_sample_unique_zipfian")
            .doc(DOC)
            .inputs_are(&[])
            .outputs_are(&["output0", "output1"])
            .infer_shape(|attrs, _, outputs| {
                let p: &ZipfParam = attrs.get();
                let (batch, n) = match p.shape.as_deref() {
                    Some(&[batch, n]) if batch >= 0 && n >= 0 => (batch, n),
                    other => {
                        let got = Shape::new(other.unwrap_or(&[]));
                        return Err(Error::invalid("shape", got, "two extents, (batch, n)"));
                    }
                };
                if n > p.range_max.into() {
                    let expected =
                        format!("at most range_max, {}, for distinct classes", p.range_max);
                    return Err(Error::argument("shape", "second extent", n, expected));
                }
                assign_shape(&mut outputs[0], "output0", &Shape::new(&[batch, n]))?;
                assign_shape(&mut outputs[1], "output1", &Shape::new(&[batch]))?;
                Ok(true)
            })
            .infer_type(|_, _, outputs| {
                outputs.iter_mut().try_for_each(|slot| assign_type(slot, "output", DType::I64))?;
                Ok(true)
            })
            .resources(&[ResourceRequest::Random])
            .gradient(Gradient::Zero)
            .kernel(Kernel::cpu(draw)),
    ]
}

fn draw(call: &Call<'_>) -> Result<()> {
    let range = f64::from(call.attrs.get::<ZipfParam>().range_max);
    let (key, n) = (call.ctx.random, call.outputs[0].dims()[1] as usize);
    let [classes, tries] = [0, 1].map(|i| Shared(call.outputs[i].as_ptr::<i64>()));
    parallel_for(call.outputs[1].size(), 1, |rows| {
        for row in rows {
            let mut d = Draws::new(key.seed, key.stream, row);
            let (mut seen, mut tried) = (HashSet::new(), 0);
            while seen.len() < n {
                tried += 1;
                let class = ((d.uniform() * (range + 1.0).ln()).exp() - 1.0) as i64;
                let class = class.clamp(0, range as i64 - 1);
                if seen.insert(class) {
                    // SAFETY: `n` classes a row; tasks have rows of their own.
                    unsafe { *classes.at(row * n + seen.len() - 1) = class };
                }
            }
            // SAFETY: one number per row.
            unsafe { *tries.at(row) = tried };
        }
    });
    Ok(())
}
