//! Input arguments that stand for several arrays, or for none, and how arrays are shared out among
//! them.

use crate::error::{Error, Result};

/// An input argument of an operator in which [`ARG_COUNTS`](super::ARG_COUNTS) says how many arrays
/// each has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedArg {
    pub name: String,
    /// Arrays that it has if it is there, or the least number of them.
    pub count: usize,
    /// May it have none?
    pub optional: bool,
    /// May it have more?
    pub open: bool,
}

impl CountedArg {
    /// The least number of arrays.
    pub fn least(&self) -> usize {
        if self.optional { 0 } else { self.count }
    }
}

/// How many of `total` arrays each argument gets: optional arguments are filled in order, and the
/// first that takes any number gets the rest. It is ambiguous if several take any number. `what`
/// names the arrays in errors.
pub fn share_out(what: &str, args: &[&CountedArg], total: usize) -> Result<Vec<usize>> {
    let mut counts: Vec<usize> = args.iter().map(|a| a.least()).collect();
    let least: usize = counts.iter().sum();
    let Some(mut rest) = total.checked_sub(least) else {
        let needed = args.iter().filter(|a| a.least() > 0);
        let each: Vec<_> = needed.map(|a| format!("{} of '{}'", a.least(), a.name)).collect();
        return Err(Error::value(format!(
            "{what} are {total} arrays, expected at least {least}, {}",
            each.join(", ")
        )));
    };
    let open: Vec<_> = args.iter().filter(|a| a.open && !a.optional).collect();
    if open.len() > 1 && rest > 0 {
        let open: Vec<_> = open.iter().map(|a| a.name.as_str()).collect();
        return Err(Error::value(format!(
            "{total} arrays can be shared out in several ways, because the inputs {} take any \
             number each: pass arrays by the names of their inputs, or the number of arrays of \
             every input, in order, as arg_counts",
            open.join(" and ")
        )));
    }
    for (arg, count) in args.iter().zip(&mut counts) {
        if arg.optional && rest >= arg.count {
            *count = arg.count;
            rest -= arg.count;
        }
        if arg.open && *count > 0 {
            *count += std::mem::take(&mut rest);
        }
    }
    if rest > 0 {
        let names: Vec<_> = args.iter().map(|a| a.name.as_str()).collect();
        return Err(Error::value(format!(
            "{what} are {total} arrays, expected at most {}: {}",
            total - rest,
            names.join(", ")
        )));
    }
    Ok(counts)
}

/// Arrays without a name, by argument: shared out, by [`share_out`], among the arguments that are
/// not `named`.
pub fn share_among_others<T>(
    args: &[CountedArg],
    named: &[bool],
    unnamed: Vec<T>,
) -> Result<Vec<Vec<T>>> {
    let mut all: Vec<Vec<T>> = args.iter().map(|_| Vec::new()).collect();
    if unnamed.is_empty() {
        return Ok(all);
    }
    let others: Vec<usize> = (0..args.len()).filter(|i| !named[*i]).collect();
    if others.is_empty() {
        let names: Vec<_> = args.iter().map(|a| a.name.as_str()).collect();
        return Err(Error::type_(format!(
            "got {} arrays without a name, expected none beside all of its inputs by name: {}",
            unnamed.len(),
            names.join(", ")
        )));
    }
    let free: Vec<&CountedArg> = others.iter().map(|i| &args[*i]).collect();
    let counts = share_out("the inputs without a name", &free, unnamed.len())?;
    let mut unnamed = unnamed.into_iter();
    for (at, n) in others.into_iter().zip(counts) {
        all[at].extend(unnamed.by_ref().take(n));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(name: &str, count: usize, optional: bool, open: bool) -> CountedArg {
        CountedArg { name: name.into(), count, optional, open }
    }

    #[test]
    fn inputs_are_shared_out_in_order() {
        let all =
            [arg("x", 1, false, false), arg("b", 1, true, false), arg("more", 2, false, true)];
        let args: Vec<&CountedArg> = all.iter().collect();
        let share = |args: &[&CountedArg], n| share_out("the inputs", args, n);
        assert_eq!(share(&args, 3).unwrap(), [1, 0, 2]);
        assert_eq!(share(&args, 4).unwrap(), [1, 1, 2]);
        assert_eq!(share(&args, 6).unwrap(), [1, 1, 4]);
        let says = |result: Result<Vec<usize>>, want: &str| {
            let message = result.unwrap_err().message().to_owned();
            assert!(message.contains(want), "{message}");
        };
        let each = "1 of 'x', 2 of 'more'";
        says(share(&args, 2), &format!("the inputs are 2 arrays, expected at least 3, {each}"));
        says(share(&args[..2], 3), "expected at most 2: x, b");
        let open = [arg("a", 1, false, true), arg("b", 1, false, true)];
        says(share(&[&open[0], &open[1]], 3), "a and b");
    }

    #[test]
    fn arrays_without_a_name_go_to_the_other_arguments() {
        let args =
            [arg("x", 1, false, false), arg("more", 1, false, true), arg("b", 1, true, false)];
        let share =
            |named: [bool; 3], arrays: &[i32]| share_among_others(&args, &named, arrays.to_vec());
        assert_eq!(share([false, true, false], &[1, 2]).unwrap(), [vec![1], vec![], vec![2]]);
        assert_eq!(share([true, false, true], &[1, 2]).unwrap(), [vec![], vec![1, 2], vec![]]);
        assert_eq!(share([false; 3], &[]).unwrap(), vec![Vec::<i32>::new(); 3]);
        let error = share([true; 3], &[1]).unwrap_err();
        assert!(error.message().contains("all of its inputs by name: x, more, b"), "{error}");
    }
}
