//! A gradient rule while a library writes it: the nodes and values that it asked for.

use super::abi;
use super::reading::MOST_ARRAYS;
use crate::error::{Error, Result};
use crate::operator::{Dep, GradNode};
use std::ffi::CString;

/// The most nodes of one gradient.
const MOST_NODES: usize = 10_000;

/// A value of a rule.
#[derive(Clone)]
pub enum Source {
    Given(Dep),
    /// Output `i` of an argument (of any, if none is named) of a node.
    Node(usize, Option<String>, usize),
}

/// A node of a rule.
pub struct Node {
    pub op: String,
    pub name: String,
    pub params: Vec<(String, String)>,
    pub inputs: Vec<(Option<String>, usize)>,
}

/// A gradient while it is written. Handles count from 1.
pub struct Rule {
    /// Of the node that is differentiated.
    pub name: CString,
    needed: Vec<bool>,
    arrives: Vec<bool>,
    pub nodes: Vec<Node>,
    pub values: Vec<Source>,
    pub bound: Vec<Option<usize>>,
    /// Why the last function that makes a node or entry failed, and gave 0 for it.
    refused: Option<String>,
}

/// The array that a gradient reads; an error names a number out of range.
pub fn dep(source: i32, number: i32, n_in: usize, n_out: usize) -> Result<Dep> {
    let at = |n: usize, what: &str| {
        let i = usize::try_from(number).ok().filter(|i| *i < n);
        i.ok_or_else(|| {
            Error::index(format!("invalid {what} {number} of a gradient: expected less than {n}"))
        })
    };
    Ok(match source {
        abi::OUT_GRAD => Dep::OutGrad(at(n_out, "output gradient")?),
        abi::IN_DATA => Dep::Input(at(n_in, "input")?),
        abi::OUT_DATA => Dep::Output(at(n_out, "output")?),
        _ => return Err(Error::value(format!("invalid source {source}: expected 0, 1 or 2"))),
    })
}

fn at(i: i32, n: usize, what: &str) -> Result<usize> {
    let found = usize::try_from(i).ok().filter(|i| *i < n);
    found.ok_or_else(|| Error::index(format!("invalid {what} {i}: expected 0 to {}", n as i64 - 1)))
}

impl Rule {
    pub fn new(node: &GradNode<'_>) -> Self {
        Rule {
            name: CString::new(node.name).unwrap_or_default(),
            needed: node.needed.to_vec(),
            arrives: node.out_grads.iter().map(Option::is_some).collect(),
            nodes: Vec::new(),
            values: Vec::new(),
            bound: vec![None; node.inputs.len()],
            refused: None,
        }
    }

    pub fn wants(&self, input: i32) -> Result<bool> {
        Ok(self.needed[at(input, self.needed.len(), "input")?])
    }

    pub fn arrives(&self, output: i32) -> Result<bool> {
        Ok(self.arrives[at(output, self.arrives.len(), "output")?])
    }

    fn add(&mut self, source: Source) -> u64 {
        self.values.push(source);
        self.values.len() as u64
    }

    pub fn value(&mut self, source: i32, number: i32) -> Result<u64> {
        let dep = dep(source, number, self.needed.len(), self.arrives.len())?;
        Ok(self.add(Source::Given(dep)))
    }

    pub fn node(&mut self, op: String, name: String) -> Result<u64> {
        if self.nodes.len() >= MOST_NODES {
            return Err(Error::value(format!(
                "a gradient of too many nodes: expected at most {MOST_NODES}"
            )));
        }
        self.nodes.push(Node { op, name, params: Vec::new(), inputs: Vec::new() });
        Ok(self.nodes.len() as u64)
    }

    /// A handle, or 0 for what could not be made, with the reason kept for those that use it.
    pub fn made(&mut self, made: Result<u64>) -> Result<u64> {
        if let Err(error) = &made {
            self.refused = Some(error.message().to_owned());
        }
        made
    }

    fn handle(&self, handle: u64, n: usize, what: &str) -> Result<usize> {
        let found = usize::try_from(handle).ok().filter(|h| (1..=n).contains(h));
        found.map(|h| h - 1).ok_or_else(|| match &self.refused {
            Some(why) if handle == 0 => Error::value(why.clone()),
            _ => Error::value(format!(
                "invalid {what} {handle}: expected one that a function returned"
            )),
        })
    }

    pub fn input(&mut self, node: u64, arg: Option<String>, value: u64) -> Result<()> {
        let (node, value) =
            (self.handle(node, self.nodes.len(), "node")?, self.known_value(value)?);
        if let Source::Node(of, _, _) = self.values[value]
            && of >= node
        {
            return Err(Error::value(
                "a node of a gradient reads one that was made after it: expected one made before",
            ));
        }
        self.nodes[node].inputs.push((arg, value));
        Ok(())
    }

    fn known_value(&self, value: u64) -> Result<usize> {
        self.handle(value, self.values.len(), "entry")
    }

    pub fn attr(&mut self, node: u64, name: String, text: String) -> Result<()> {
        let node = self.handle(node, self.nodes.len(), "node")?;
        self.nodes[node].params.push((name, text));
        Ok(())
    }

    pub fn output(&mut self, node: u64, arg: Option<String>, i: i32) -> Result<u64> {
        let node = self.handle(node, self.nodes.len(), "node")?;
        let i = at(i, MOST_ARRAYS as usize, "output")?;
        Ok(self.add(Source::Node(node, arg, i)))
    }

    pub fn bind(&mut self, input: i32, value: u64) -> Result<()> {
        let (input, value) = (at(input, self.bound.len(), "input")?, self.known_value(value)?);
        self.bound[input] = Some(value);
        Ok(())
    }

    /// The nodes that bound gradients need.
    pub fn reachable(&self) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        let mark = |needed: &mut Vec<bool>, value: usize| {
            if let Source::Node(node, _, _) = self.values[value] {
                needed[node] = true;
            }
        };
        self.bound.iter().flatten().for_each(|v| mark(&mut needed, *v));
        for node in (0..self.nodes.len()).rev() {
            if needed[node] {
                self.nodes[node].inputs.iter().for_each(|(_, v)| mark(&mut needed, *v));
            }
        }
        needed
    }
}
