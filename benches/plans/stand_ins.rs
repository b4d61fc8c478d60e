//! Stand-ins for operators of the graphs that are not registered: what planning needs, without kernels.

use rsnet::Shape;
use rsnet::operator::{
    Dep, GradBuilder, GradNode, Gradient, InplacePair, OpDef, Registry, Value, infer,
};
use rsnet::{Error, params};

params! { pub struct Sum { num_args: u32, required, ""; } }
params! { pub struct Cat { num_args: u32, required, ""; dim: i32, default(1), ""; } }
params! { pub struct Split { num_outputs: u32, required, ""; axis: i32, default(1), ""; squeeze_axis: bool, default(false), ""; } }

type B<'a> = &'a mut dyn GradBuilder;

pub fn add_missing(r: &Registry) {
    let add = |def: OpDef| {
        if r.get(&def.name).is_none() {
            r.add(def).expect("a stand-in has a fresh name");
        }
    };
    let unary = |name: &str| OpDef::plain(name).infer_shape(infer::elementwise_shape);
    let binary = |name: &str| unary(name).inputs_are(&[("lhs", ""), ("rhs", "")]);
    let first = |_: &rsnet::operator::Attrs| vec![InplacePair::new(0, 0)];
    let either = |_: &rsnet::operator::Attrs| vec![InplacePair::new(0, 0), InplacePair::new(1, 0)];
    let pass = |_: B<'_>, n: &GradNode<'_>| Ok(vec![n.out_grads[0]; n.inputs.len()]);
    add(binary("elemwise_add")
        .aliases(&["_plus", "_Plus"])
        .inplace_by(either)
        .gradient(Gradient::rule(pass)));
    let mul = |b: B<'_>, n: &GradNode<'_>| {
        let g = n.out_grad(b, 0)?;
        let l = b.op("elemwise_mul", "", &[], &[g, n.inputs[1]])?[0];
        let r = b.op("elemwise_mul", "", &[], &[g, n.inputs[0]])?[0];
        Ok(vec![Some(l), Some(r)])
    };
    add(binary("elemwise_mul")
        .aliases(&["_mul", "_Mul"])
        .inplace_by(either)
        .gradient(Gradient::rule(mul)));
    add(unary("_mul_scalar").inplace_by(first).gradient(Gradient::rule(|b, n: &GradNode<'_>| {
        let g = n.out_grad(b, 0)?;
        Ok(vec![Some(b.op("_mul_scalar", "", &[], &[g])?[0])])
    })));
    add(OpDef::new::<Sum>("ElementWiseSum")
        .aliases(&["add_n"])
        .variadic("num_args", "")
        .inplace_by(first)
        .infer_shape(infer::elementwise_shape)
        .gradient(Gradient::rule(pass)));
    add(unary("_copy").inplace(&[InplacePair::identity(0, 0)]));
    add(unary("zeros_like").ignores(&[0]));
    add(OpDef::new::<Cat>("Concat")
        .variadic("num_args", "")
        .infer_shape(|a, i, o| {
            let d = a.get::<Cat>().dim as usize;
            let mut out = i[0].clone();
            let total = i.iter().map(|s| s.dims().get(d).copied().unwrap_or(-1)).sum();
            if out.rank_known() {
                out.dims_mut()[d] = total;
                o[0] = out;
            }
            Ok(o[0].is_known())
        })
        .gradient(Gradient::use_none("_backward_Concat")));
    add(OpDef::plain("_backward_Concat"));
    add(OpDef::new::<Split>("SliceChannel")
        .output_names_by(|a| {
            (0..a.get::<Split>().num_outputs).map(|i| format!("output{i}")).collect()
        })
        .infer_shape(|a, i, o| {
            let p = a.get::<Split>();
            if !i[0].is_known() {
                return Ok(false);
            }
            let mut s = i[0].clone();
            let axis = s.axis(p.axis as i64)?;
            if p.squeeze_axis {
                s.dims_mut().remove(axis);
            } else {
                s.dims_mut()[axis] /= p.num_outputs as i64;
            }
            o.iter_mut().for_each(|x| *x = s.clone());
            Ok(true)
        })
        .gradient(Gradient::use_none("_backward_SliceChannel")));
    add(OpDef::plain("_backward_SliceChannel"));
    let identity = |_: &rsnet::operator::Attrs| vec![InplacePair::identity(0, 0)];
    add(OpDef::plain("Flatten")
        .inplace_by(identity)
        .infer_shape(|_, i, o| {
            if !i[0].is_known() {
                return Ok(false);
            }
            o[0] = Shape::new(&[i[0].dims()[0], i[0].product(1..i[0].ndim()) as i64]);
            Ok(true)
        })
        .gradient(Gradient::use_none("_backward_copy")));
    add(OpDef::plain("_backward_copy").inplace_by(identity));
    let reshape = OpDef::dynamic(
        "Reshape",
        free_schema(&["shape"]),
        std::sync::Arc::new(|_, given| Ok(std::sync::Arc::new(given.to_vec()) as _)),
    );
    add(reshape
        .inplace_by(identity)
        .infer_shape(|a, i, o| {
            if !i[0].is_known() {
                return Ok(false);
            }
            let want = list(a, "shape");
            let mut dims = Vec::new();
            for (k, &d) in want.iter().enumerate() {
                dims.push(if d == 0 { i[0].dims()[k] } else { d });
            }
            let known: i64 = dims.iter().filter(|d| **d > 0).product();
            for d in &mut dims {
                if *d == -1 {
                    *d = i[0].size() as i64 / known;
                }
            }
            if dims.iter().any(|d| *d < 0) {
                return Err(Error::value("reshape code"));
            }
            o[0] = Shape::new(&dims);
            Ok(true)
        })
        .gradient(Gradient::use_none("_backward_copy")));
    let transpose = OpDef::dynamic(
        "transpose",
        free_schema(&["axes"]),
        std::sync::Arc::new(|_, given| Ok(std::sync::Arc::new(given.to_vec()) as _)),
    );
    add(transpose
        .infer_shape(|a, i, o| {
            if !i[0].is_known() {
                return Ok(false);
            }
            o[0] = list(a, "axes").iter().map(|&x| i[0].dims()[x as usize]).collect();
            Ok(true)
        })
        .gradient(Gradient::use_none("_backward_transpose")));
    add(OpDef::plain("_backward_transpose"));
    add(binary("broadcast_add")
        .inplace_by(first)
        .infer_shape(|_, i, o| {
            o[0].merge(&i[0])?;
            Ok(o[0].is_known())
        })
        .gradient(Gradient::use_none("_backward_broadcast_add")));
    add(OpDef::plain("_backward_broadcast_add").inplace_by(first));
}

fn free_schema(names: &[&str]) -> rsnet::operator::Schema {
    let field = |n: &&str| rsnet::operator::Field {
        name: (*n).into(),
        ty: rsnet::operator::FieldType::Shape,
        default: None,
        doc: String::new(),
        range: (None, None),
    };
    rsnet::operator::Schema { fields: names.iter().map(field).collect(), ..Default::default() }
}

fn list(a: &rsnet::operator::Attrs, name: &str) -> Vec<i64> {
    match a.value(name) {
        Some(Value::List(items)) => items
            .iter()
            .filter_map(|v| if let Value::Int(i) = v { Some(*i) } else { None })
            .collect(),
        _ => Vec::new(),
    }
}

#[allow(unused)]
const USED: Option<Dep> = None;
