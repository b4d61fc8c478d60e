//! Runs operators straight from their definitions, without engine or arrays, and checks gradients
//! against numeric differentiation. For unit tests of operators only.

use crate::context::{Context, DeviceType};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::kernels::naive::noise;
use crate::operator::{
    Around, Attrs, Body, Call, GradBuilder, GradEntry, GradNode, MatchFacts, OpContext, OpDef,
    OpReq, OpState, RandomKey, Registry, Value,
};
use crate::shape::Shape;
use crate::tensor::View;
use crate::with_dtype;
use std::sync::{Arc, OnceLock};

/// An array that owns its memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub shape: Shape,
    pub dtype: DType,
    words: Vec<u64>,
}

impl Tensor {
    pub fn zeros(shape: &Shape, dtype: DType) -> Self {
        let words = vec![0; (shape.size() * dtype.size()).div_ceil(8)];
        Tensor { shape: shape.clone(), dtype, words }
    }

    pub fn new(dims: &[i64], dtype: DType, values: &[f64]) -> Self {
        let t = Tensor::zeros(&Shape::new(dims), dtype);
        assert_eq!(t.shape.size(), values.len());
        t.fill(values);
        t
    }

    /// float64 of these values.
    pub fn of(dims: &[i64], values: &[f64]) -> Self {
        Tensor::new(dims, DType::F64, values)
    }

    /// float64 noise in -1 to 1.
    pub fn noise(dims: &[i64], seed: u64) -> Self {
        Tensor::of(dims, &noise(Shape::new(dims).size(), seed))
    }

    pub fn cast(&self, dtype: DType) -> Self {
        Tensor::new(self.shape.dims(), dtype, &self.values())
    }

    fn fill(&self, values: &[f64]) {
        let view = self.view();
        with_dtype!(self.dtype, T => {
            for (i, &v) in values.iter().enumerate() {
                // SAFETY: the buffer holds an element for each value.
                unsafe { *view.as_ptr::<T>().add(i) = T::from_f64(v) };
            }
        });
    }

    pub fn values(&self) -> Vec<f64> {
        let view = self.view();
        // SAFETY: the buffer is alive and nothing writes it meanwhile.
        with_dtype!(self.dtype, T => unsafe { view.slice::<T>() }.iter().map(|x| x.to_f64()).collect())
    }

    pub fn view(&self) -> View {
        let ptr = self.words.as_ptr().cast_mut().cast();
        // SAFETY: the buffer has the size of the shape; tests keep it alive while they use the
        // view.
        unsafe { View::new(ptr, self.shape.clone(), self.dtype) }
    }
}

/// The built-in operators.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(super::builtins)
}

pub fn parse(op: &str, params: &[(&str, &str)]) -> Result<(Arc<OpDef>, Attrs)> {
    let op = registry().find(op)?;
    let given: Vec<(&str, Value)> = params.iter().map(|(k, v)| (*k, Value::from(*v))).collect();
    let attrs = op.parse(&given)?;
    Ok((op, attrs))
}

/// Infers the shapes of inputs and outputs from the known inputs; unknown ranks are
/// `None`.
pub fn infer_shapes(
    op: &str,
    params: &[(&str, &str)],
    inputs: &[Option<&[i64]>],
) -> Result<(bool, Vec<Shape>, Vec<Shape>)> {
    let (op, attrs) = parse(op, params)?;
    let mut ins: Vec<Shape> =
        inputs.iter().map(|s| s.map_or(Shape::unknown(), Shape::new)).collect();
    ins.resize(op.num_inputs(&attrs), Shape::unknown());
    let mut outs = vec![Shape::unknown(); op.num_outputs(&attrs)];
    let infer = op.infer_shape.as_ref().expect("operator infers shapes");
    let complete = infer(&attrs, &mut ins, &mut outs)?;
    Ok((complete, ins, outs))
}

fn run_kernel(
    op: &OpDef,
    attrs: &Attrs,
    state: Option<&OpState>,
    train: bool,
    inputs: &[&Tensor],
    outputs: &[Tensor],
) -> Result<()> {
    let names = op.inputs(attrs);
    let facts: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, t)| (names.get(i).map_or("", String::as_str), t.dtype, t.shape.ndim()))
        .collect();
    let facts = MatchFacts { device: DeviceType::Cpu, attrs, tensors: &facts };
    let kernel = op.choose_kernel(&facts)?;
    let ctx = OpContext {
        is_train: train,
        need_grad: train,
        device: Context::default(),
        stream: None,
        random: RandomKey { seed: 7, stream: 1 },
    };
    let ins: Vec<View> = inputs.iter().map(|t| t.view()).collect();
    let outs: Vec<View> = outputs.iter().map(|t| t.view()).collect();
    let req = vec![OpReq::Write; outs.len()];
    match &kernel.body {
        Body::Native(run) => {
            let (ctx, inputs, req, outputs, memory) = (&ctx, &ins[..], &req[..], &outs[..], None);
            let around = Around::NONE;
            run(&Call { attrs, ctx, state, inputs, req, outputs, memory, around })
        }
        _ => panic!("built-in operators are native"),
    }
}

/// One run operator, ready to be differentiated.
pub struct Ran {
    op: Arc<OpDef>,
    attrs: Attrs,
    state: Option<OpState>,
    inputs: Vec<Tensor>,
    /// All outputs, hidden ones too.
    pub outputs: Vec<Tensor>,
    train: bool,
}

/// Infers, allocates and runs.
pub fn run(op: &str, params: &[(&str, &str)], inputs: &[Tensor], train: bool) -> Result<Ran> {
    let (op, attrs) = parse(op, params)?;
    let n_out = op.num_outputs(&attrs);
    assert_eq!(op.num_inputs(&attrs), inputs.len(), "number of inputs of {}", op.name);
    let mut in_shapes: Vec<Shape> = inputs.iter().map(|t| t.shape.clone()).collect();
    let mut out_shapes = vec![Shape::unknown(); n_out];
    let mut in_types: Vec<_> = inputs.iter().map(|t| Some(t.dtype)).collect();
    let mut out_types = vec![None; n_out];
    let known = op.infer_shape.as_ref().expect("infers shapes");
    assert!(known(&attrs, &mut in_shapes, &mut out_shapes)?, "shapes of {}", op.name);
    let known = op.infer_type.as_ref().expect("infers types");
    assert!(known(&attrs, &mut in_types, &mut out_types)?, "types of {}", op.name);
    let outputs: Vec<Tensor> = out_shapes
        .iter()
        .zip(&out_types)
        .map(|(s, t)| Tensor::zeros(s, t.expect("inference is complete")))
        .collect();
    let types: Vec<DType> = inputs.iter().map(|t| t.dtype).collect();
    let state = match &op.state {
        Some(make) => Some(make(&attrs, Context::default(), &in_shapes, &types)?),
        None => None,
    };
    let refs: Vec<&Tensor> = inputs.iter().collect();
    run_kernel(&op, &attrs, state.as_ref(), train, &refs, &outputs)?;
    Ok(Ran { op, attrs, state, inputs: inputs.to_vec(), outputs, train })
}

/// The values of the first output.
pub fn values(op: &str, params: &[(&str, &str)], inputs: &[Tensor]) -> Vec<f64> {
    run(op, params, inputs, false).unwrap().outputs[0].values()
}

struct Builder<'a> {
    ran: &'a Ran,
    entries: Vec<Tensor>,
}

impl Builder<'_> {
    fn push(&mut self, t: Tensor) -> GradEntry {
        self.entries.push(t);
        GradEntry(self.entries.len() as u64 - 1)
    }

    fn get(&self, e: &GradEntry) -> &Tensor {
        &self.entries[e.0 as usize]
    }
}

impl GradBuilder for Builder<'_> {
    fn backward_with(
        &mut self,
        op: &str,
        _: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let op = registry().find(op)?;
        let outs: Vec<Tensor> =
            self.ran.inputs.iter().map(|t| Tensor::zeros(&t.shape, t.dtype)).collect();
        let ins: Vec<&Tensor> = inputs.iter().map(|e| self.get(e)).collect();
        let Ran { attrs, state, train, .. } = self.ran;
        run_kernel(&op, attrs, state.as_ref(), *train, &ins, &outs)?;
        Ok(outs.into_iter().map(|t| self.push(t)).collect())
    }

    fn op(
        &mut self,
        op: &str,
        _: &str,
        params: &[(&str, Value)],
        inputs: &[GradEntry],
    ) -> Result<Vec<GradEntry>> {
        let texts: Vec<_> = params.iter().map(|(k, v)| (*k, v.to_string())).collect();
        let params: Vec<_> = texts.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let inputs: Vec<Tensor> = inputs.iter().map(|e| self.get(e).clone()).collect();
        let ran = run(op, &params, &inputs, self.ran.train)?;
        let visible = ran.op.num_visible_outputs(&ran.attrs);
        Ok(ran.outputs.into_iter().take(visible).map(|t| self.push(t)).collect())
    }
}

impl Ran {
    pub fn input(&self, i: usize) -> &Tensor {
        &self.inputs[i]
    }

    /// Runs the gradients; the values that input `mutated` has afterwards, and the gradients.
    pub fn gradients_and_mutated(
        &self,
        out_grads: &[Tensor],
        mutated: usize,
    ) -> Result<(Vec<f64>, Vec<Tensor>)> {
        let mut entries = Vec::new();
        let grads = self.differentiate(out_grads, &mut entries)?;
        Ok((entries[mutated].values(), grads))
    }

    /// The gradients of all inputs; absent ones are zero. One gradient per visible output is given.
    pub fn gradients(&self, out_grads: &[Tensor]) -> Result<Vec<Tensor>> {
        self.differentiate(out_grads, &mut Vec::new())
    }

    fn differentiate(
        &self,
        out_grads: &[Tensor],
        entries: &mut Vec<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let mut builder = Builder { ran: self, entries: Vec::new() };
        let inputs: Vec<_> = self.inputs.iter().map(|t| builder.push(t.clone())).collect();
        let outputs: Vec<_> = self.outputs.iter().map(|t| builder.push(t.clone())).collect();
        let mut grads: Vec<_> = out_grads.iter().map(|t| Some(builder.push(t.clone()))).collect();
        grads.resize(outputs.len(), None);
        let needed = vec![true; inputs.len()];
        let node = GradNode {
            op: &self.op,
            attrs: &self.attrs,
            name: "node",
            inputs: &inputs,
            outputs: &outputs,
            out_grads: &grads,
            needed: &needed,
        };
        let result = self.op.gradient.apply(&mut builder, &node)?;
        let gradients = result
            .iter()
            .zip(&self.inputs)
            .map(|(g, t)| match g {
                Some(g) => builder.get(g).clone(),
                None => Tensor::zeros(&t.shape, t.dtype),
            })
            .collect();
        *entries = builder.entries;
        Ok(gradients)
    }
}

/// Compares the gradients of inputs `wrt` (float64) with central differences of `sum(output *
/// noise)` over all visible outputs.
pub fn check_gradient(
    op: &str,
    params: &[(&str, &str)],
    inputs: &[Tensor],
    wrt: &[usize],
    train: bool,
) {
    let forward = |inputs: &[Tensor]| run(op, params, inputs, train).unwrap();
    let ran = forward(inputs);
    let visible = ran.op.num_visible_outputs(&ran.attrs);
    let heads: Vec<Tensor> = ran.outputs[..visible]
        .iter()
        .enumerate()
        .map(|(i, t)| Tensor::noise(t.shape.dims(), 99 + i as u64).cast(t.dtype))
        .collect();
    let loss = |ran: &Ran| -> f64 {
        ran.outputs
            .iter()
            .zip(&heads)
            .map(|(t, h)| {
                let (t, h) = (t.values(), h.values());
                t.iter().zip(&h).map(|(a, b)| a * b).sum::<f64>()
            })
            .sum()
    };
    let grads = ran.gradients(&heads).unwrap();
    let step = 1e-5;
    for &i in wrt {
        assert_eq!(inputs[i].dtype, DType::F64, "numeric differentiation needs float64");
        let base = inputs[i].values();
        let got = grads[i].values();
        for at in 0..base.len() {
            let shifted = |by: f64| {
                let mut values = base.clone();
                values[at] += by;
                let mut inputs = inputs.to_vec();
                inputs[i] = Tensor::of(inputs[i].shape.dims(), &values);
                loss(&forward(&inputs))
            };
            let want = (shifted(step) - shifted(-step)) / (2.0 * step);
            assert!(
                (got[at] - want).abs() <= 1e-5 * want.abs().max(1.0),
                "{op}{params:?}: gradient of input {i} at {at} is {}, numerically {want}",
                got[at]
            );
        }
    }
}

/// Checks that half precision equals float32 up to rounding, forward and backward.
pub fn check_half(op: &str, params: &[(&str, &str)], inputs: &[Tensor], train: bool) {
    let (def, attrs) = parse(op, params).unwrap();
    let mut types = vec![None; inputs.len()];
    types[0] = Some(DType::F16);
    let mut outs = vec![None; def.num_outputs(&attrs)];
    def.infer_type.as_ref().unwrap()(&attrs, &mut types, &mut outs).unwrap();
    let half: Vec<Tensor> = inputs.iter().map(|t| t.cast(DType::F16)).collect();
    let single: Vec<Tensor> = half.iter().map(|t| t.cast(DType::F32)).collect();
    let half: Vec<Tensor> =
        half.iter().zip(&types).map(|(t, d)| t.cast(d.unwrap_or(DType::F16))).collect();
    let (a, b) = (run(op, params, &half, train).unwrap(), run(op, params, &single, train).unwrap());
    let same = |a: &Tensor, b: &Tensor, what: &str| {
        for (x, y) in a.values().iter().zip(b.values()) {
            assert!((x - y).abs() <= 4e-3 * y.abs().max(1.0), "{op} {what}: {x} and {y}");
        }
    };
    assert_eq!(a.outputs[0].dtype, DType::F16);
    same(&a.outputs[0], &b.outputs[0], "output");
    let head = Tensor::noise(b.outputs[0].shape.dims(), 3).cast(DType::F16);
    let (ga, gb) = (a.gradients(&[head.clone()]), b.gradients(&[head.cast(DType::F32)]));
    for (a, b) in ga.unwrap().iter().zip(&gb.unwrap()) {
        same(a, b, "gradient");
    }
}
