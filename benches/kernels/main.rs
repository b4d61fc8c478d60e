//! Speed of kernels beside what the machine can do: `cargo bench --bench kernels [-- PART...]`.
//!
//! First prints what the machine can do, measured in this run. Then `kernel=NAME ... threads=N` for
//! every case whose line has one of the PARTs in it (all without): GFLOP/s (a multiplication and an
//! addition each count) with the fraction of the peak, or GB/s (bytes that must be read and
//! written) with the fraction of a copy of as many; each is the best of many runs. Products of
//! float16 and of 8-bit integers stand beside the peak of float32. Convolutions are counted as
//! direct sums, so a fraction above 1 is a better algorithm.
//!
//! A case is a call of an operator's kernel, whose answer is checked before it is timed. What moves
//! memory is swept from 1 KB to 256 MB, so that a regression shows as a change of shape.

mod arrays;
mod case;
mod compute;
mod machine;
mod memory;

use case::{Call, Case, Limit};
use machine::Machine;
use rsnet::operator::Registry;
use std::sync::Arc;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (machine, operators) = (Machine::new(), rsnet::ops::builtins());
    machine.print();
    let cases = compute::products().into_iter().chain(compute::convolutions());
    for case in cases.chain(memory::cases()) {
        let line = format!("kernel={} {}", case.name, case.extents);
        if wanted.is_empty() || wanted.iter().any(|part| line.contains(part.as_str())) {
            measure(&machine, &operators, &case, &line);
        }
    }
}

fn measure(machine: &Machine, operators: &Registry, case: &Case, line: &str) {
    let call = Arc::new(Call::new(operators, case));
    for (threads, engine) in &machine.engines {
        let checked = Arc::clone(&call);
        machine::on(engine, move || checked.run());
        call.check(case.answer.as_ref());
        let timed = Arc::clone(&call);
        let seconds = machine::best_on(engine, move || timed.run());
        match case.limit {
            Limit::Peak { work, dtype } => {
                let rate = work / seconds / 1e9;
                let of_peak = rate / (machine.peak(dtype) * *threads as f64);
                println!("{line} threads={threads} gflops={rate:.1} of_peak={of_peak:.2}");
            }
            Limit::Copy => {
                let bytes = call.bytes();
                let rate = bytes as f64 / seconds / 1e9;
                let of_copy = rate / machine::copied(engine, bytes);
                println!(
                    "{line} bytes={bytes} threads={threads} gb_per_s={rate:.1} \
                     of_copy={of_copy:.2}"
                );
            }
        }
    }
}
