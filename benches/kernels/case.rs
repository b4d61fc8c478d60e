//! A case of the bench, and the call of an operator's kernel that it is.

use crate::arrays::{Array, Input, Inputs};
use rsnet::operator::{
    Around, Attrs, Body, Call as KernelCall, NativeFn, OpContext, OpReq, Registry, Value,
};
use rsnet::{DType, Shape};

/// What is measured, and the line that it prints.
pub struct Case {
    pub name: &'static str,
    /// What the line says of its extents.
    pub extents: String,
    pub op: &'static str,
    pub params: Vec<(&'static str, String)>,
    pub inputs: Vec<Input>,
    /// Of a gradient, whose outputs are like the inputs after the first: the only one wanted.
    pub wanted: Option<usize>,
    pub limit: Limit,
    pub answer: Answer,
}

/// What a case can reach at best.
pub enum Limit {
    /// The arithmetic of a dtype; `work` counts multiplications and additions.
    Peak { work: f64, dtype: DType },
    /// A copy of as many bytes.
    Copy,
}

/// An element of the first output that is wanted.
pub type Answer = Box<dyn Fn(&Inputs<'_>, usize) -> f64>;

/// A call with its arrays.
pub struct Call {
    name: String,
    attrs: Attrs,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
    req: Vec<OpReq>,
    kernel: NativeFn,
}

impl Call {
    pub fn new(operators: &Registry, case: &Case) -> Self {
        let op = operators.find(case.op).expect("an operator");
        let params: Vec<_> =
            case.params.iter().map(|(name, text)| (*name, Value::from(text.as_str()))).collect();
        let attrs = op.parse(&params).expect("parameters");
        let inputs: Vec<Array> =
            case.inputs.iter().enumerate().map(|(k, input)| input.array(k)).collect();
        let of = |arrays: &[Array]| -> (Vec<Shape>, Vec<Option<DType>>) {
            arrays.iter().map(|a| (a.view.shape().clone(), Some(a.view.dtype()))).unzip()
        };
        let (shapes, dtypes) = match case.wanted {
            Some(_) => of(&inputs[1..]),
            None => {
                let (mut shapes, mut dtypes) = of(&inputs);
                let count = op.num_outputs(&attrs);
                let (mut out_shapes, mut out_dtypes) =
                    (vec![Shape::unknown(); count], vec![None; count]);
                let infer = op.infer_shape.as_ref().expect("inference");
                assert!(infer(&attrs, &mut shapes, &mut out_shapes).expect("shapes"));
                let infer = op.infer_type.as_ref().expect("inference");
                assert!(infer(&attrs, &mut dtypes, &mut out_dtypes).expect("dtypes"));
                (out_shapes, out_dtypes)
            }
        };
        let outputs: Vec<Array> = shapes
            .iter()
            .zip(dtypes)
            .map(|(shape, dtype)| Array::zeros(shape, dtype.expect("a dtype")))
            .collect();
        let is_wanted = |i| case.wanted.is_none_or(|wanted| i == wanted);
        let req = (0..outputs.len())
            .map(|i| if is_wanted(i) { OpReq::Write } else { OpReq::Null })
            .collect();
        let kernel = match &op.only_host_kernel().expect("one kernel").body {
            Body::Native(run) => run.clone(),
            _ => unreachable!("built-in operators are native"),
        };
        let name = format!("{} {}", case.name, case.extents);
        Call { name, attrs, inputs, outputs, req, kernel }
    }

    pub fn run(&self) {
        let views = |arrays: &[Array]| arrays.iter().map(|a| a.view.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (views(&self.inputs), views(&self.outputs));
        let call = KernelCall {
            attrs: &self.attrs,
            ctx: &OpContext { is_train: true, ..OpContext::default() },
            state: None,
            inputs: &inputs,
            req: &self.req,
            outputs: &outputs,
            memory: None,
            around: Around::NONE,
        };
        (self.kernel)(&call).expect("the kernel runs");
    }

    /// Ends the bench if elements of the output that is wanted are wrong.
    pub fn check(&self, answer: &dyn Fn(&Inputs<'_>, usize) -> f64) {
        const SAMPLES: usize = 16;
        let wanted = self.req.iter().position(|&req| req == OpReq::Write).expect("an output");
        let got = &self.outputs[wanted];
        let (size, inputs) = (got.view.size(), Inputs(&self.inputs));
        let samples: Vec<(usize, f64)> = (0..SAMPLES)
            .map(|s| (size - 1) * s / (SAMPLES - 1))
            .map(|at| (at, answer(&inputs, at)))
            .collect();
        let largest = samples.iter().fold(0.0f64, |most, s| most.max(s.1.abs()));
        let is_half = self.inputs.iter().any(|a| a.view.dtype() == DType::F16);
        let tolerance = largest * if is_half { 2e-3 } else { 1e-4 };
        for (at, want) in samples {
            let got = got.at(at);
            let is_close = (got - want).abs() <= tolerance;
            assert!(is_close, "{}: element {at} is {got}, expected {want}", self.name);
        }
    }

    /// Bytes that have to be read and written.
    pub fn bytes(&self) -> usize {
        let outputs = self.outputs.iter().zip(&self.req).filter(|(_, req)| **req != OpReq::Null);
        let arrays = self.inputs.iter().chain(outputs.map(|(array, _)| array));
        arrays.map(|a| a.view.size_bytes()).sum()
    }
}
