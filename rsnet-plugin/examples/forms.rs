//! One operator for each thing that an operator can say.

use rsnet_plugin::{
    Arg, Attr, Bool, Call, Compare, DType, Element, Gradient, InPlace, Infer, Kernel, Operator,
    Request, Result, State, When, abi, f16, plugin,
};
use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};

/// Sums of `size` neighbours, or the greatest of them: the shape of the output depends on an
/// attribute.
struct Window;

impl Window {
    fn size(ctx: &Infer<'_>) -> Result {
        match ctx.attrs().text(1)? {
            "max" if ctx.attrs().int(0)? < 2 => Err("the greatest of one is that one".into()),
            _ => Ok(()),
        }
    }
}

impl Operator for Window {
    const NAME: &'static CStr = c"rust_window";
    const DOC: &'static CStr = c"Sums of neighbours, or the greatest of them.";
    const ALIASES: &'static [&'static CStr] = &[c"rust_windows"];
    const INPUTS: &'static [Arg] = &[Arg::new(c"x").doc(c"One axis.")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const ATTRS: &'static [Attr] = &[
        Attr::required(c"size", abi::kind::I32).doc(c"Neighbours.").at_least(1.0),
        Attr::one_of(c"mode", &[c"sum", c"max"], c"sum"),
    ];
    const CHECK: Option<fn(&Infer<'_>) -> Result> = Some(Window::size);
    const SIGNATURES: Option<fn(&Infer<'_>) -> Result<Vec<String>>> =
        Some(|_| Ok(vec!["x:B y:B".into()]));

    fn infer(ctx: &Infer<'_>) -> Result {
        let x = ctx.input(0)?;
        if let Some([n]) = x.shape() {
            let size = ctx.attrs().int(0)?;
            if size > *n {
                return Err(format!("size is {size}, expected at most {n}"));
            }
            ctx.set_shape(0, &[n - size + 1])?;
        }
        x.dtype().map_or(Ok(()), |dtype| ctx.set_dtype(0, dtype))
    }

    fn compute(call: &Call<'_>) -> Result {
        let size = call.attrs().int(0)? as usize;
        let greatest = call.attrs().text(1)? == "max";
        let (x, y) = (call.input::<f32>(0)?, call.output::<f32>(0)?);
        call.parallel_parts(y, 1 << 12, |first, part| {
            for (i, y) in part.iter_mut().enumerate() {
                let window = &x[first + i..first + i + size];
                *y = match greatest {
                    true => window.iter().copied().fold(f32::MIN, f32::max),
                    false => window.iter().sum(),
                };
            }
            Ok(())
        })
    }
}

/// Shows attributes of every kind, as the text of an error.
struct Show;

impl Operator for Show {
    const NAME: &'static CStr = c"rust_show";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const ATTRS: &'static [Attr] = &[
        Attr::new(c"big", abi::kind::U64, c"18446744073709551615"),
        Attr::new(c"flag", abi::kind::BOOL, c"True"),
        Attr::new(c"word", abi::kind::STR, c"a b"),
        Attr::new(c"shape", abi::kind::SHAPE, c"(2, 3)"),
        Attr::new(c"dtype", abi::kind::DTYPE, c"float16"),
        Attr::new(c"floats", abi::kind::LIST_F32, c"(0.5,)"),
        Attr::new(c"shapes", abi::kind::LIST_SHAPE, c"((1, 2), ())"),
        Attr::new(c"words", abi::kind::LIST_STR, c"('a', 'b')"),
        Attr::new(c"dtypes", abi::kind::LIST_DTYPE, c"('int8',)"),
        Attr::new(c"maybe", abi::kind::F64, c"None").or_none(),
    ];

    fn compute(call: &Call<'_>) -> Result {
        let attrs = call.attrs();
        let all = (0..Self::ATTRS.len()).map(|i| attrs.get(i).map(|d| format!("{d:?}")));
        assert_eq!(attrs.named(c"word"), attrs.get(2));
        Err(all.collect::<Result<Vec<_>>>()?.join("; "))
    }
}

/// The sum of any number of arrays, and of a bias that may be absent.
struct Total;

impl Operator for Total {
    const NAME: &'static CStr = c"rust_total";
    const INPUTS: &'static [Arg] =
        &[Arg::new(c"x").at_least(1), Arg::new(c"bias").optional().no_grad()];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const KERNELS: &'static [Kernel] = &[Kernel::new(Total::compute).flags(abi::ACCUMULATES)];
    const DIFFERENTIABLE: bool = true;

    fn compute(call: &Call<'_>) -> Result {
        let y = call.output::<f32>(0)?;
        if call.request(0)? != Request::Add {
            y.fill(0.0);
        }
        for i in 0..call.count(c"x") {
            for (y, x) in y.iter_mut().zip(call.input::<f32>(i)?) {
                *y += x;
            }
        }
        let Some(bias) = call.find(c"bias", 0) else { return Ok(()) };
        let bias = call.input::<f32>(bias)?;
        y.iter_mut().zip(bias).for_each(|(y, b)| *y += 10.0 * b);
        Ok(())
    }

    fn gradient(g: &Gradient<'_>) -> Result {
        let n = g.n_inputs() - usize::from(g.find(c"bias", 0).is_some());
        for i in (0..n).filter(|i| g.wants(*i)) {
            // By the names of arguments: the same sum, of the gradient alone.
            let sum = g.node(c"rust_total")?.input_of(c"x", g.out_grad(0)?)?;
            g.bind(i, sum.output_of(c"y", 0)?)?;
        }
        Ok(())
    }
}

/// Tells which of its kernels ran.
struct Which;

impl Which {
    fn says<T: Element>(call: &Call<'_>, value: T) -> Result {
        call.output::<T>(0)?.fill(value);
        Ok(())
    }
}

impl Operator for Which {
    const NAME: &'static CStr = c"rust_which";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const ATTRS: &'static [Attr] = &[Attr::new(c"fast", abi::kind::BOOL, c"False")];
    const KERNELS: &'static [Kernel] = &[
        Kernel::new(|call| Which::says(call, 1.0f32)).named(c"single").when(When::DType(
            c"x",
            0,
            DType::F32,
        )),
        Kernel::new(|call| Which::says(call, 2.0f32))
            .named(c"fast")
            .when(When::All(&[
                When::DType(c"x", 0, DType::F32),
                When::Attr(c"fast", Compare::Eq, c"True"),
                When::Axes(c"x", 0, Compare::Ge, 1),
                When::Device(abi::CPU),
            ]))
            .priority(1),
        Kernel::new(|call| Which::says(call, f16::from_f32(1.5))).when(When::DType(
            c"x",
            0,
            DType::F16,
        )),
        Kernel::new(|call| Which::says(call, 3i32))
            .when(When::Any(&[When::DType(c"x", 0, DType::I32), When::Not(&When::Always)])),
        Kernel::new(|call| {
            let (x, y) = (call.input::<Bool>(0)?, call.output::<Bool>(0)?);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = (!bool::from(*x)).into());
            Ok(())
        })
        .named(c"not")
        .when(When::DType(c"x", 0, DType::BOOL)),
    ];
}

/// Adds to its first output by itself, and skips the second if it is not requested.
struct Requests;

impl Operator for Requests {
    const NAME: &'static CStr = c"rust_requests";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y"), Arg::new(c"z")];
    const KERNELS: &'static [Kernel] =
        &[Kernel::new(Requests::compute).flags(abi::ACCUMULATES | abi::SKIPS_NULL)];

    fn compute(call: &Call<'_>) -> Result {
        let x = call.input::<f32>(0)?;
        for i in 0..call.n_outputs() {
            let factor = (i + 1) as f32;
            match call.request(i)? {
                Request::Null => {}
                Request::Add => {
                    call.output(i)?
                        .iter_mut()
                        .zip(x)
                        .for_each(|(y, x): (&mut f32, _)| *y += factor * x);
                }
                _ => call.output(i)?.iter_mut().zip(x).for_each(|(y, x)| *y = factor * x),
            }
        }
        Ok(())
    }
}

/// Counts its runs in a state, and adds what it saw to an auxiliary array.
struct Counts;

impl Operator for Counts {
    const NAME: &'static CStr = c"rust_counts";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x"), Arg::new(c"seen").aux()];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const DETERMINISTIC: bool = false;
    const STATE: Option<fn(&Infer<'_>) -> Result<State>> = Some(|_| Ok(Box::new(0u32)));

    fn compute(call: &Call<'_>) -> Result {
        let runs: &mut u32 = call.state()?;
        *runs += 1;
        let (x, seen) = (call.input::<f32>(0)?, call.aux::<f32>(c"seen")?);
        let y = call.output::<f32>(0)?;
        for ((y, seen), x) in y.iter_mut().zip(seen).zip(x) {
            *seen += x;
            *y = x + *runs as f32;
        }
        Ok(())
    }
}

/// Random numbers between 0 and 1.
struct Noise;

impl Operator for Noise {
    const NAME: &'static CStr = c"rust_noise";
    const INPUTS: &'static [Arg] = &[Arg::new(c"like").ignored()];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const RANDOM: bool = true;

    fn compute(call: &Call<'_>) -> Result {
        let y = call.output::<f32>(0)?;
        let mut words = vec![0; y.len()];
        call.random(0, &mut words)?;
        y.iter_mut().zip(words).for_each(|(y, word)| *y = (word >> 40) as f32 / (1 << 24) as f32);
        Ok(())
    }
}

/// The reverse, in the memory of the input where it can be.
struct Reverse;

impl Operator for Reverse {
    const NAME: &'static CStr = c"rust_reverse";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const INPLACE: &'static [(i32, i32)] = &[(0, 0)];

    fn compute(call: &Call<'_>) -> Result {
        match call.in_place::<f32>(0, 0)? {
            InPlace::Same(both) => both.reverse(),
            InPlace::Apart(x, y) => y.iter_mut().zip(x.iter().rev()).for_each(|(y, x)| *y = *x),
        }
        Ok(())
    }
}

/// The median, sorted in temporary space.
struct Median;

impl Operator for Median {
    const NAME: &'static CStr = c"rust_median";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const KERNELS: &'static [Kernel] = &[Kernel::new(Median::compute).tmp_bytes(|ctx| {
        Ok(4 * ctx.input(0)?.shape().unwrap_or(&[]).iter().product::<i64>() as u64)
    })];

    fn infer(ctx: &Infer<'_>) -> Result {
        ctx.set_shape(0, &[1])?;
        ctx.demand_dtype(0, DType::F32)?;
        ctx.set_dtype(0, DType::F32)
    }

    fn compute(call: &Call<'_>) -> Result {
        let x = call.input::<f32>(0)?;
        assert_eq!(call.tmp()?.len(), 4 * x.len());
        let sorted = call.temp::<f32>(x.len())?;
        sorted.copy_from_slice(x);
        sorted.sort_by(f32::total_cmp);
        call.output::<f32>(0)?[0] = sorted[sorted.len() / 2];
        Ok(())
    }
}

/// Takes its output twice, or panics in a part of a loop.
struct Wrong;

impl Operator for Wrong {
    const NAME: &'static CStr = c"rust_wrong";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const ATTRS: &'static [Attr] = &[Attr::new(c"how", abi::kind::STR, c"twice")];

    fn compute(call: &Call<'_>) -> Result {
        match call.attrs().text(0)? {
            "twice" => {
                let (_first, _second) = (call.output::<f32>(0)?, call.output::<f32>(0)?);
                Ok(())
            }
            "dtype" => call.input::<f64>(0).map(|_| ()),
            "aux" => call.aux::<f32>(c"x").map(|_| ()),
            "state" => call.state::<u32>().map(|_| ()),
            "huge" => call.temp::<f64>(usize::MAX / 2).map(|_| ()),
            _ => call.parallel_for(100_000, 1, |part| {
                assert!(!part.contains(&77_777), "in a part");
                Ok(())
            }),
        }
    }
}

/// Adds the byte that it reads from one descriptor, once it has written one to another.
struct Wait;

impl Operator for Wait {
    const NAME: &'static CStr = c"rust_wait";
    const INPUTS: &'static [Arg] = &[Arg::new(c"x")];
    const OUTPUTS: &'static [Arg] = &[Arg::new(c"y")];
    const ATTRS: &'static [Attr] =
        &[Attr::required(c"from", abi::kind::I32), Attr::required(c"to", abi::kind::I32)];
    const DETERMINISTIC: bool = false;
    const LONG: bool = true;

    fn compute(call: &Call<'_>) -> Result {
        let path = |i: usize| call.attrs().int(i).map(|fd| format!("/dev/fd/{fd}"));
        let mut byte = [1];
        let begun =
            File::options().write(true).open(path(1)?).and_then(|mut to| to.write_all(&byte));
        begun.map_err(|error| error.to_string())?;
        let read = File::open(path(0)?).and_then(|mut from| from.read_exact(&mut byte));
        read.map_err(|error| error.to_string())?;
        for (y, x) in call.output::<f32>(0)?.iter_mut().zip(call.input::<f32>(0)?) {
            *y = x + f32::from(byte[0]);
        }
        Ok(())
    }
}

plugin!(Window, Show, Total, Which, Requests, Counts, Noise, Reverse, Median, Wrong, Wait);
