//! The table of graphs: what rsnet plans, what MXNet plans, the lower bound, and the time.
//!
//! `cargo bench --bench plans -- DIR [FILTER]`: DIR holds symbol files (or `graphs.tar.xz` with them) and
//! `bounds.json` (the shapes and MXNet's figures). Only internal entries count; nothing is executed. Every
//! plan is checked before it is reported: entries that are alive at once do not overlap.

mod goals;
mod graphs;

use graphs::{Graphs, check_overlaps};
use rsnet::graph::{Plan, plan};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(dir) = args.first() else {
        println!("usage: cargo bench --bench plans -- DIR [FILTER]");
        return ExitCode::SUCCESS;
    };
    match run(Path::new(dir), args.get(1).map_or("", String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &Path, filter: &str) -> Result<(), String> {
    let graphs = Graphs::open(dir)?;
    table(&graphs, filter)?;
    goals::limits(&graphs, filter);
    goals::batches(&graphs, filter);
    goals::forms(&graphs, filter)
}

fn table(graphs: &Graphs, filter: &str) -> Result<(), String> {
    println!(
        "{:<36} {:>14} {:>14} {:>14} {:>7} {:>7} {:>9}",
        "plan", "ours", "MXNet", "bound", "/MXNet", "/bound", "seconds"
    );
    let (mut to_bound, mut to_own, mut above) = (Vec::new(), Vec::new(), Vec::new());
    for name in graphs.plans().iter().filter(|n| n.contains(filter)) {
        let reference = graphs.figures(name);
        let (plan, seconds) = measure(graphs, name).map_err(|e| format!("{name}: {e}"))?;
        let ours = plan.total_arena_bytes();
        let ratio = ours as f64 / reference.bound as f64;
        println!(
            "{name:<36} {ours:>14} {:>14} {:>14} {:>7.4} {ratio:>7.4} {seconds:>9.4}{}",
            reference.planned,
            reference.bound,
            ours as f64 / reference.planned as f64,
            if plan.lower_bound_bytes == ours {
                String::new()
            } else {
                format!("  (own bound {})", plan.lower_bound_bytes)
            }
        );
        if name.ends_with(".null") || name.ends_with(".write") {
            to_bound.push(ratio);
            to_own.push(ours as f64 / plan.lower_bound_bytes as f64);
        }
        if ours > reference.planned {
            above.push(name.clone());
        }
    }
    let count = to_bound.len();
    println!("{count} .null and .write plans to MXNet's bound: {}", summary(&to_bound));
    println!("{count} .null and .write plans to their own bound: {}", summary(&to_own));
    println!("plans above MXNet's: {above:?}");
    Ok(())
}

fn summary(ratios: &[f64]) -> String {
    let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    format!("geometric mean {mean:.5}, worst {worst:.5}")
}

/// Plans `graph.how` (`resnet50.write.mirror`); the time is the best of three runs of all passes.
fn measure(graphs: &Graphs, name: &str) -> Result<(Plan, f64), String> {
    let (graph, how) = name.split_once('.').ok_or("a plan without a dot")?;
    let file = match how {
        "write.sublinear" | "write.sublinear_lb" => format!("{graph}.sublinear.json"),
        _ => format!("{graph}.json"),
    };
    let mut request = graphs.request(&file, how != "null")?;
    request.options.mirror = how == "write.mirror";
    let mut best = f64::INFINITY;
    let mut made = None;
    for _ in 0..3 {
        let start = Instant::now();
        made = Some(plan(&request).map_err(|e| e.to_string())?);
        best = best.min(start.elapsed().as_secs_f64());
    }
    let made = made.ok_or("no run")?;
    check_overlaps(&made)?;
    Ok((made, best))
}
