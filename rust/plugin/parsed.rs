//! What an operator of a library knows of one set of attributes: the payload of [`Attrs`].

use super::abi;
use super::call::{Owned, call, make};
use super::decl::{ArgDecl, MOST_ARRAYS, OpDecl};
use super::frame::Frame;
use super::remember::Remembered;
use super::values::Values;
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::operator::{Attrs, Value};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// Attributes, names of inputs and outputs, and what the library made of them.
pub struct Parsed {
    pub op: Arc<OpDecl>,
    pub values: Values,
    /// How many arrays each input and output argument has.
    pub counts: [Vec<usize>; 2],
    /// Names of all inputs and outputs, and their flags.
    pub names: [Vec<(String, u32)>; 2],
    made: Option<Owned>,
    /// Backward operators that are given the attributes of this one, each with its own reading.
    others: Lock<Vec<Arc<Parsed>>>,
    pub remembered: Remembered,
    /// The first error of a callback that could not return it; see `OpDef::deferred_error`.
    fault: OnceLock<Error>,
}

impl Parsed {
    /// From values in normal form: those of the attributes, then the counts of arrays.
    pub fn new(op: &Arc<OpDecl>, values: &[Value]) -> Result<Parsed> {
        let (own, more) = values.split_at(op.attrs.len().min(values.len()));
        let counts = counts(op, more)?;
        let names = |args: &[ArgDecl], counts: &[usize]| {
            let arrays = args.iter().zip(counts);
            arrays.flat_map(|(a, n)| (0..*n).map(|i| (a.array(i), a.flags))).collect()
        };
        let names = [names(&op.inputs, &counts[0]), names(&op.outputs, &counts[1])];
        let mut parsed = Parsed {
            values: Values::new(&op.attrs, own)?,
            op: op.clone(),
            counts,
            names,
            made: None,
            others: Lock::default(),
            remembered: Remembered::default(),
            fault: OnceLock::new(),
        };
        let user = op.calls.user;
        let made = make(&Frame::new(&parsed), "parse", op.calls.parse, user)?;
        parsed.made = made.map(|made| Owned::new(made, op.calls.free_parsed, &op.library));
        call(&Frame::new(&parsed), "check", op.calls.check, user)?;
        if op.calls.names.is_some() {
            let frame = Frame::new(&parsed);
            call(&frame, "names", op.calls.names, user)?;
            let listed = frame.into_said().names;
            parsed.names = checked_names(listed)?;
        }
        Ok(parsed)
    }

    /// The reading of `attrs` by `op`, whose own they are, or a forward operator's.
    #[inline]
    pub fn with<R>(attrs: &Attrs, op: &Arc<OpDecl>, f: impl FnOnce(&Parsed) -> R) -> Result<R> {
        let parsed = attrs.typed().downcast_ref::<Parsed>().ok_or_else(|| {
            Error::internal("an operator of a library was given the attributes of another one")
        })?;
        if Arc::ptr_eq(&parsed.op, op) || parsed.op.name == op.name {
            return Ok(f(parsed));
        }
        let other = parsed.other(attrs, op)?;
        Ok(f(&other))
    }

    fn other(&self, attrs: &Attrs, op: &Arc<OpDecl>) -> Result<Arc<Parsed>> {
        let mut others = self.others.lock();
        if let Some(known) = others.iter().find(|p| Arc::ptr_eq(&p.op, op)) {
            return Ok(known.clone());
        }
        let schema = super::define::schema(op);
        let known = |name: &str| schema.fields.iter().any(|f| f.name == name);
        let given = attrs.given().iter().filter(|(k, _)| known(k));
        let given: Vec<_> = given.map(|(k, v)| (k.as_str(), v.clone())).collect();
        let values = schema.parse(&given).map_err(|e| e.in_operator(&op.name))?;
        let fresh = Arc::new(Parsed::new(op, &values)?);
        others.push(fresh.clone());
        Ok(fresh)
    }

    pub fn payload(self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self)
    }

    /// What `parse` made.
    pub fn made(&self) -> *mut std::ffi::c_void {
        self.made.as_ref().map_or(std::ptr::null_mut(), |m| m.made)
    }

    /// `answer`, or nothing, with its error kept for the run.
    pub fn or_fault<T: Default>(&self, answer: Result<T>) -> T {
        answer.unwrap_or_else(|error| {
            let _ = self.fault.set(error);
            T::default()
        })
    }

    /// The kept error.
    pub fn fault(&self) -> Result<()> {
        self.fault.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The number of array `i` of an argument among all of its side.
    pub fn find(&self, side: i32, arg: &str, i: usize) -> Option<usize> {
        let args = self.op.args(side);
        let counts = &self.counts[side as usize];
        match args.iter().position(|a| a.name == arg) {
            Some(at) if self.op.calls.names.is_none() => {
                (i < counts[at]).then(|| counts[..at].iter().sum::<usize>() + i)
            }
            _ => {
                let named = |name: &str| self.names[side as usize].iter().position(|n| n.0 == name);
                if i == 0 { named(arg) } else { None }
            }
        }
    }

    /// How many arrays an argument has.
    pub fn count(&self, side: i32, arg: &str) -> usize {
        let at = self.op.args(side).iter().position(|a| a.name == arg);
        match at {
            Some(at) if self.op.calls.names.is_none() => self.counts[side as usize][at],
            _ => usize::from(self.find(side, arg, 0).is_some()),
        }
    }
}

/// Names that `names` listed: distinct, at least one output.
fn checked_names(listed: [Vec<(String, u32)>; 2]) -> Result<[Vec<(String, u32)>; 2]> {
    for side in &listed {
        for (i, (name, _)) in side.iter().enumerate() {
            if name.is_empty() || side[..i].iter().any(|n| n.0 == *name) {
                return Err(Error::value(format!(
                    "invalid name '{name}', which 'names' listed: expected distinct names"
                )));
            }
        }
    }
    Ok(listed)
}

/// How many arrays each argument has, from the parameters that count them.
fn counts(op: &OpDecl, values: &[Value]) -> Result<[Vec<usize>; 2]> {
    let mut values = values.iter();
    let least = |args: &[ArgDecl]| args.iter().map(ArgDecl::least).collect::<Vec<_>>();
    let mut inputs = least(&op.inputs);
    if op.has_variable_inputs() {
        let total = match values.next() {
            Some(Value::Int(n)) if *n >= 0 => Some(*n as usize),
            _ => None,
        };
        inputs = match (listed(values.next()), total) {
            (Some(counts), _) => check_counts("arg_counts", &op.inputs, counts)?,
            (None, Some(total)) => share_out(&op.inputs, total)?,
            (None, None) => inputs,
        };
    }
    let mut outputs = least(&op.outputs);
    if op.has_variable_outputs()
        && let Some(counts) = listed(values.next())
    {
        outputs = check_counts("out_counts", &op.outputs, counts)?;
    }
    Ok([inputs, outputs])
}

/// A list of counts; an empty one says nothing.
fn listed(value: Option<&Value>) -> Option<Vec<i64>> {
    let Some(Value::List(items)) = value else { return None };
    let int = |v: &Value| if let Value::Int(i) = v { Some(*i) } else { None };
    items.iter().map(int).collect::<Option<Vec<_>>>().filter(|counts| !counts.is_empty())
}

fn check_counts(what: &str, args: &[ArgDecl], counts: Vec<i64>) -> Result<Vec<usize>> {
    if counts.len() != args.len() {
        let names: Vec<_> = args.iter().map(|a| a.name.as_str()).collect();
        return Err(Error::value(format!(
            "invalid {what} of {} counts: expected {}: {}",
            counts.len(),
            args.len(),
            names.join(", ")
        )));
    }
    let one = |(arg, n): (&ArgDecl, i64)| {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        let fits = n == arg.count
            || (n == 0 && arg.has(abi::OPTIONAL))
            || (n > arg.count && n <= MOST_ARRAYS as usize && arg.has(abi::AT_LEAST));
        let bound = if arg.has(abi::AT_LEAST) { "at least " } else { "" };
        let absent = if arg.has(abi::OPTIONAL) { " or none" } else { "" };
        fits.then_some(n).ok_or_else(|| {
            let name = &arg.name;
            Error::value(format!(
                "argument '{name}' has {n} arrays, expected {bound}{}{absent}",
                arg.count
            ))
        })
    };
    args.iter().zip(counts).map(one).collect()
}

/// Counts from the number of all inputs: optional arguments are filled in order, and the first that
/// takes any number gets the rest. It is ambiguous if several take any number.
fn share_out(args: &[ArgDecl], total: usize) -> Result<Vec<usize>> {
    let mut counts: Vec<usize> = args.iter().map(ArgDecl::least).collect();
    let least: usize = counts.iter().sum();
    let Some(mut rest) = total.checked_sub(least) else {
        let names: Vec<_> = args.iter().map(|a| format!("{} {}", a.name, a.least())).collect();
        return Err(Error::value(format!(
            "the inputs are {total} arrays, expected at least {least}: {}",
            names.join(", ")
        )));
    };
    let open = args.iter().filter(|a| a.has(abi::AT_LEAST) && !a.has(abi::OPTIONAL));
    let open: Vec<_> = open.map(|a| a.name.as_str()).collect();
    if open.len() > 1 && rest > 0 {
        return Err(Error::value(format!(
            "{total} arrays can be shared out in several ways, because the inputs {} take any \
             number each: pass the number of arrays of every input, in order, as arg_counts",
            open.join(" and ")
        )));
    }
    for (arg, count) in args.iter().zip(&mut counts) {
        if arg.has(abi::OPTIONAL) && rest >= arg.count {
            *count = arg.count;
            rest -= arg.count;
        }
        if arg.has(abi::AT_LEAST) && *count > 0 {
            *count += std::mem::take(&mut rest);
        }
    }
    if rest > 0 {
        return Err(Error::value(format!(
            "the inputs are {total} arrays, expected at most {}",
            total - rest
        )));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(name: &str, count: usize, flags: u32) -> ArgDecl {
        ArgDecl { name: name.into(), doc: String::new(), count, flags }
    }

    #[test]
    fn inputs_are_shared_out_in_order() {
        let args = [arg("x", 1, 0), arg("b", 1, abi::OPTIONAL), arg("more", 2, abi::AT_LEAST)];
        assert_eq!(share_out(&args, 3).unwrap(), [1, 0, 2]);
        assert_eq!(share_out(&args, 4).unwrap(), [1, 1, 2]);
        assert_eq!(share_out(&args, 6).unwrap(), [1, 1, 4]);
        let says = |result: Result<Vec<usize>>, want: &str| {
            let message = result.unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        says(share_out(&args, 2), "expected at least 3: x 1, b 0, more 2");
        says(share_out(&args[..2], 3), "expected at most 2");
        let open = [arg("a", 1, abi::AT_LEAST), arg("b", 1, abi::AT_LEAST)];
        says(share_out(&open, 3), "a and b");
        says(check_counts("arg_counts", &args, vec![1, 1]), "expected 3: x, b, more");
        says(check_counts("arg_counts", &args, vec![1, 2, 2]), "expected 1 or none");
        assert_eq!(check_counts("arg_counts", &args, vec![1, 0, 5]).unwrap(), [1, 0, 5]);
    }
}
