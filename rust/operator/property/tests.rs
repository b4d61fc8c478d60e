//! An operator with a property of its own, and what it becomes.

use super::*;
use crate::ops::testing::Tensor;
use std::sync::atomic::{AtomicUsize, Ordering};

crate::params! {
    /// Parameters of the operator under test.
    struct CountedParam { times: f64, default(3.0), "Factor."; }
}

/// `y = times * x`, with a hidden output `x + 1`, a state that counts forward runs and an
/// auxiliary state that the backward run sets to this count.
struct Counted {
    times: f64,
    runs: AtomicUsize,
}

impl OperatorProperty for CountedParam {
    fn list_outputs(&self) -> Vec<&'static str> {
        vec!["output", "next"]
    }

    fn list_auxiliary_states(&self) -> Vec<&'static str> {
        vec!["count"]
    }

    fn num_visible_outputs(&self) -> usize {
        1
    }

    fn infer_shape(
        &self,
        input: &mut [Shape],
        output: &mut [Shape],
        aux: &mut [Shape],
    ) -> Result<bool> {
        output.fill(input[0].clone());
        aux[0] = Shape::new(&[1]);
        Ok(input[0].is_known())
    }

    fn declare_backward_dependency(&self, run: Entries<'_>) -> Vec<Dep> {
        vec![run.out_data[1], run.out_grad[0]]
    }

    fn backward_inplace_option(&self) -> Vec<(Dep, usize)> {
        vec![(Dep::OutGrad(0), 0)]
    }

    fn create_operator(
        &self,
        _: Context,
        shapes: &[Shape],
        _: &[DType],
    ) -> Result<Box<dyn Operator>> {
        assert_eq!(shapes.len(), 2, "the auxiliary state is told too");
        Ok(Box::new(Counted { times: self.times, runs: AtomicUsize::new(0) }))
    }
}

impl Operator for Counted {
    fn forward(&self, run: &Forward<'_>) -> Result<()> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the test's tensors are apart and of one shape.
        unsafe {
            let outs = (run.out_data[0].slice_mut::<f64>(), run.out_data[1].slice_mut::<f64>());
            for ((y, n), x) in outs.0.iter_mut().zip(outs.1).zip(run.in_data[0].slice::<f64>()) {
                (*y, *n) = (self.times * x, x + 1.0);
            }
        }
        Ok(())
    }

    fn backward(&self, run: &Backward<'_>) -> Result<()> {
        assert!(run.in_data[0].is_none() && run.out_data[0].is_none(), "not declared");
        let (dy, next) = (run.out_grad[0].expect("declared"), run.out_data[1].expect("declared"));
        // SAFETY: as above.
        unsafe {
            let from = dy.slice::<f64>().iter().zip(next.slice::<f64>());
            for (dx, (dy, next)) in run.in_grad[0].slice_mut::<f64>().iter_mut().zip(from) {
                *dx = self.times * dy + next;
            }
            run.aux_states[0].slice_mut::<f64>()[0] = self.runs.load(Ordering::Relaxed) as f64;
        }
        Ok(())
    }
}

#[test]
fn a_property_becomes_two_definitions() {
    let [forward, backward] = define::<CountedParam>("Counted", Kernel::cpu);
    let attrs = forward.parse(&[("times", 2.0.into())]).unwrap();
    assert_eq!(forward.inputs(&attrs), ["data", "count"]);
    assert_eq!((forward.num_outputs(&attrs), forward.num_visible_outputs(&attrs)), (2, 1));
    assert_eq!(
        (forward.mutates.to_vec(&attrs), backward.mutates.to_vec(&attrs)),
        (vec![1], vec![2])
    );
    assert_eq!(backward.inplace.to_vec(&attrs), [InplacePair::new(1, 0)]);
    let read = [Dep::Output(1), Dep::OutGrad(0), Dep::Input(1)];
    assert_eq!(forward.gradient.reads(&attrs, 2, 1).unwrap(), read);
    let mut types = ([Some(DType::F64), None], [None, None]);
    let infer_type = forward.infer_type.as_ref().unwrap();
    assert!(infer_type(&attrs, &mut types.0, &mut types.1).unwrap());
    assert_eq!(types, ([Some(DType::F64); 2], [Some(DType::F64); 2]));
    let mixed = infer_type(&attrs, &mut [Some(DType::F64), Some(DType::F32)], &mut [None, None]);
    assert!(mixed.unwrap_err().message().contains("auxiliary state"));
}

#[test]
fn an_operator_runs_forward_and_backward() {
    let [forward, backward] = define::<CountedParam>("Counted", Kernel::cpu);
    let attrs = forward.parse(&[]).unwrap();
    let of = |values: &[f64]| Tensor::of(&[values.len() as i64], values);
    let (x, count) = (of(&[1., 2.]), of(&[9.]));
    let (y, next, dy, dx, of_aux) =
        (of(&[0., 0.]), of(&[0., 0.]), of(&[10., 20.]), of(&[0., 0.]), of(&[7.]));
    let make = forward.state.as_ref().unwrap();
    let shapes = [x.shape.clone(), count.shape.clone()];
    let state = make(&attrs, Context::default(), &shapes, &[DType::F64; 2]).unwrap();
    let run = |op: &OpDef, inputs: &[&Tensor], outputs: &[&Tensor], state| {
        let views = |t: &[&Tensor]| t.iter().map(|t| t.view()).collect::<Vec<_>>();
        let (ctx, req) = (OpContext::default(), vec![OpReq::Write; outputs.len()]);
        let (inputs, outputs) = (views(inputs), views(outputs));
        let crate::operator::Body::Native(f) = &op.kernels[0].body else { unreachable!("native") };
        f(&Call {
            attrs: &attrs,
            ctx: &ctx,
            state,
            inputs: &inputs,
            req: &req,
            outputs: &outputs,
            memory: None,
            around: crate::operator::Around::NONE,
        })
    };
    for _ in 0..2 {
        run(&forward, &[&x, &count], &[&y, &next], Some(&state)).unwrap();
    }
    assert_eq!((y.values(), next.values()), (vec![3., 6.], vec![2., 3.]));
    run(&backward, &[&next, &dy, &count], &[&dx, &of_aux], Some(&state)).unwrap();
    assert_eq!(
        (dx.values(), count.values(), of_aux.values()),
        (vec![32., 63.], vec![2.], vec![0.])
    );
    assert!(run(&forward, &[&x, &count], &[&y, &next], None).is_err());
}
