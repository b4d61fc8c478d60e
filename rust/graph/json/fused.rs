//! Fused nodes, which hold a graph of their own: each becomes the plain nodes that it stands for.
//!
//! A fused node of oneDNN's backend computes a convolution or a fully connected layer with what
//! follows it, or a product of self-attention. One that is `quantized` takes 8-bit integers with
//! ranges: the product of a layer is computed on integers, everything else in float32, and its
//! output is quantised again, here or, where the file has no range for it, by a node behind it.

use super::super::static_graph::Dict;
use super::raw::{Raw, RawGraph};
use crate::error::{Error, Result};
use std::collections::HashMap;

/// An output of a node of the file.
type Source = (usize, u32);

const FUSED: [&str; 4] = [
    "_sg_mkldnn_conv",
    "_sg_mkldnn_fully_connected",
    "_sg_mkldnn_selfatt_qk",
    "_sg_mkldnn_selfatt_valatt",
];

/// Replaces fused nodes. Each keeps its number, which that of its last plain node becomes; the
/// others are appended.
pub(super) fn expand(raw: &mut Vec<Raw>) -> Result<()> {
    let mut reals = HashMap::new();
    for id in 0..raw.len() {
        if !FUSED.contains(&raw[id].op.as_str()) {
            continue;
        }
        let mut bodies = std::mem::take(&mut raw[id].bodies);
        match (bodies.pop(), bodies.is_empty()) {
            (Some(body), true) => {
                let real = Expansion::of(raw, id, &body)?.run(body)?;
                reals.extend(real.map(|real| (id, real)));
            }
            (None, _) => {}
            (Some(_), false) => return Err(refused(&raw[id], "it has several subgraphs")),
        }
    }
    requantize(raw, &reals);
    Ok(())
}

/// Lets nodes that quantise the sums of a fused node again quantise the real numbers that the sums
/// stand for (`reals`, by the fused node's number).
fn requantize(raw: &mut [Raw], reals: &HashMap<usize, Source>) {
    for node in raw.iter_mut().filter(|node| node.op == "_contrib_requantize") {
        let Some(&(fused, 0)) = node.inputs.first() else { continue };
        if let Some(&real) = reals.get(&fused) {
            node.op = "_contrib_quantize_v2".to_owned();
            node.inputs = vec![real];
        }
    }
}

fn refused(node: &Raw, why: &str) -> Error {
    Error::not_implemented(format!("operator {} of node '{}': {why}", node.op, node.name))
}

fn malformed(node: &Raw, what: &str, expected: &str) -> Error {
    Error::value(format!(
        "node '{}': invalid {what} of its subgraph: expected {expected}",
        node.name
    ))
}

/// Is a parameter given, and true?
fn flag(dict: &Dict, key: &str) -> bool {
    dict.get(key).is_some_and(|text| matches!(text.as_str(), "True" | "true" | "1"))
}

/// Integers and their range.
#[derive(Clone, Copy)]
struct Integers {
    values: Source,
    min: Source,
    max: Source,
}

struct Expansion<'a> {
    raw: &'a mut Vec<Raw>,
    id: usize,
    name: String,
    dict: Dict,
    /// What the variables of the body are, in order.
    inputs: Vec<Source>,
    /// Those among them that are integers.
    integers: Vec<Option<Integers>>,
    /// Those as real numbers, as far as they were needed.
    reals: Vec<Option<Source>>,
}

impl<'a> Expansion<'a> {
    fn of(raw: &'a mut Vec<Raw>, id: usize, body: &RawGraph) -> Result<Self> {
        let node = &raw[id];
        let count = body.nodes.iter().filter(|n| n.op == "null").count();
        if node.inputs.len() < count {
            let expected = format!("at most {} variables", node.inputs.len());
            return Err(malformed(node, "nodes", &expected));
        }
        let (inputs, ranges) = node.inputs.split_at(count);
        let mut integers = vec![None; count];
        if flag(&node.dict, "quantized") {
            // The ranges of the data, then of the summand, or of weight and bias.
            let summand = count.checked_sub(1).filter(|_| flag(&node.dict, "with_sum"));
            let owners = (0..count.min(1)).chain(summand).chain(1..count);
            for (owner, range) in owners.zip(ranges.chunks_exact(2)) {
                integers[owner] =
                    Some(Integers { values: inputs[owner], min: range[0], max: range[1] });
            }
        }
        let (name, dict, inputs) = (node.name.clone(), node.dict.clone(), inputs.to_vec());
        Ok(Expansion { raw, id, name, dict, inputs, integers, reals: vec![None; count] })
    }

    /// Appends a node and returns its first output.
    fn add(&mut self, op: &str, name: String, dict: Dict, inputs: Vec<Source>) -> Source {
        self.raw.push(Raw::plain(op, name, dict, inputs));
        (self.raw.len() - 1, 0)
    }

    /// Input `at` of the body as real numbers.
    fn real(&mut self, at: usize) -> Source {
        let Some(q) = self.integers[at] else { return self.inputs[at] };
        if let Some(real) = self.reals[at] {
            return real;
        }
        let name = format!("{}_input{at}_dequantize", self.name);
        let inputs = vec![q.values, q.min, q.max];
        let real = self.add("_contrib_dequantize", name, Dict::new(), inputs);
        self.reals[at] = Some(real);
        real
    }

    /// Makes the plain nodes. Returns the real numbers behind an output that is quantised without a
    /// calibrated range, which in the file are sums in int32.
    fn run(mut self, body: RawGraph) -> Result<Option<Source>> {
        let [(head, 0)] = body.heads[..] else {
            return Err(malformed(&self.raw[self.id], "heads", "the first output of one node"));
        };
        let quantises = flag(&self.dict, "quantized") && !flag(&self.dict, "enable_float_output");
        // What the nodes of the body became; variables by their number among the inputs.
        let mut variable = vec![None; body.nodes.len()];
        let mut variables = 0..;
        for (at, node) in body.nodes.iter().enumerate() {
            if node.op == "null" {
                variable[at] = variables.next();
            }
        }
        if variable[head].is_some() {
            return Err(malformed(&self.raw[self.id], "heads", "an operator, not a variable"));
        }
        let mut made: Vec<Option<Source>> = vec![None; body.nodes.len()];
        for (at, node) in body.nodes.into_iter().enumerate() {
            if node.op == "null" {
                continue;
            }
            let result = match self.product(&node, &variable)? {
                Some(result) => result,
                None => {
                    let inputs = self.inputs_of(&node, &variable, &made)?;
                    self.add(&node.op, node.name, node.dict, inputs)
                }
            };
            made[at] = Some(result);
        }
        let Some(mut last) = made[head] else {
            return Err(Error::internal("the head of a subgraph was not made"));
        };
        let mut uncalibrated = None;
        if quantises {
            let range = ["min_calib_range", "max_calib_range"];
            let range = range.map(|key| Some((key.to_owned(), self.dict.get(key)?.clone())));
            let mut dict = Dict::from_iter(range.into_iter().flatten());
            let is_calibrated = dict.len() == 2 && dict.values().all(|text| text != "None");
            if !is_calibrated {
                dict.clear();
                uncalibrated = Some(last);
            }
            dict.insert("out_type".to_owned(), "auto".to_owned());
            last = self.add("_contrib_quantize_v2", String::new(), dict, vec![last]);
        }
        self.finish(last.0, head)?;
        Ok(uncalibrated)
    }

    /// What a node of the body reads, in real numbers.
    fn inputs_of(
        &mut self,
        node: &Raw,
        variable: &[Option<usize>],
        made: &[Option<Source>],
    ) -> Result<Vec<Source>> {
        let source = |&(from, index): &Source| match (variable[from], made[from]) {
            (Some(input), _) => Ok(self.real(input)),
            (None, Some((id, _))) => Ok((id, index)),
            (None, None) => {
                let expected = "inputs before the nodes that read them";
                Err(malformed(&self.raw[self.id], "nodes", expected))
            }
        };
        node.inputs.iter().map(source).collect()
    }

    /// Gives the fused node's number and name to node `last`. (Nothing refers to `last` but, if it
    /// is not the newest node, other nodes of this body.)
    fn finish(self, last: usize, head: usize) -> Result<()> {
        let newest = self.raw.len() - 1;
        if last != newest {
            let what = format!("head {head}");
            return Err(malformed(&self.raw[self.id], &what, "the last node"));
        }
        let Some(mut node) = self.raw.pop() else { return Ok(()) };
        node.name = self.name;
        self.raw[self.id] = node;
        Ok(())
    }

    /// Gives a bias that is a variable its shape, which an addition cannot infer.
    fn declare_extent(&mut self, bias: usize, layer: &Raw) {
        let extent = ["num_filter", "num_hidden"].into_iter().find_map(|key| layer.dict.get(key));
        let variable = &mut self.raw[bias];
        if let ("null", Some(extent)) = (variable.op.as_str(), extent) {
            variable.dict.entry("__shape__".to_owned()).or_insert_with(|| format!("({extent},)"));
        }
    }

    /// The result of a convolution or fully connected layer whose data are integers, in real
    /// numbers; `None` for every other node.
    fn product(&mut self, node: &Raw, variable: &[Option<usize>]) -> Result<Option<Source>> {
        let op = match node.op.as_str() {
            "Convolution" => "_contrib_quantized_conv",
            "FullyConnected" => "_contrib_quantized_fully_connected",
            _ => return Ok(None),
        };
        let inputs: Vec<Option<usize>> = node.inputs.iter().map(|e| variable[e.0]).collect();
        let (Some(&Some(data)), Some(&Some(weight))) = (inputs.first(), inputs.get(1)) else {
            return Ok(None);
        };
        let Some(x) = self.integers[data] else { return Ok(None) };
        let w = match self.integers[weight] {
            Some(w) => w,
            None => {
                let name = format!("{}_weight_quantize", self.name);
                let real = vec![self.inputs[weight]];
                let (q, _) = self.add("_contrib_quantize_v2", name, Dict::new(), real);
                Integers { values: (q, 0), min: (q, 1), max: (q, 2) }
            }
        };
        let bias = inputs.get(2).copied().flatten();
        let integer_bias = bias.and_then(|bias| self.integers[bias]);
        let mut dict = node.dict.clone();
        dict.insert("no_bias".into(), if integer_bias.is_some() { "False" } else { "True" }.into());
        let mut operands = vec![x.values, w.values];
        operands.extend(integer_bias.map(|b| b.values));
        for range in [Some(x), Some(w), integer_bias].into_iter().flatten() {
            operands.extend([range.min, range.max]);
        }
        let (sum, _) = self.add(op, node.name.clone(), dict, operands);
        let name = format!("{}_dequantize", node.name);
        let sums = vec![(sum, 0), (sum, 1), (sum, 2)];
        let mut result = self.add("_contrib_dequantize", name, Dict::new(), sums);
        if let (Some(bias), None) = (bias, integer_bias) {
            let mut from = self.inputs[bias];
            self.declare_extent(from.0, node);
            if node.op == "Convolution" {
                let extents = |kernel: &String| {
                    let parts = kernel.split(',');
                    parts.filter(|part| part.contains(|c: char| c.is_ascii_digit())).count()
                };
                let axes = node.dict.get("kernel").map_or(2, extents);
                let shape = format!("(1, -1{})", ", 1".repeat(axes));
                let dict = Dict::from([("shape".to_owned(), shape)]);
                from = self.add("Reshape", format!("{}_bias_reshape", node.name), dict, vec![from]);
            }
            let name = format!("{}_bias_add", node.name);
            result = self.add("broadcast_add", name, Dict::new(), vec![result, from]);
        }
        Ok(Some(result))
    }
}
