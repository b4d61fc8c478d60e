//! The table of graphs: what rsnet plans, what MXNet plans, the lower bound, and the time.
//!
//! `cargo bench --bench plans -- DIR [FILTER]`: DIR holds `NAME.json` and `bounds.json` (the shapes and
//! MXNet's figures). Only internal entries count; nothing is executed. Every plan is checked before it is
//! reported: entries that are alive at once do not overlap.

mod stand_ins;

use rsnet::Shape;
use rsnet::graph::{Place, Plan, PlanRequest, Symbol, load_json, plan};
use rsnet::operator::{OpReq, Registry};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

struct Figures {
    planned: usize,
    bound: usize,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let Some(dir) = args.first().map(PathBuf::from) else {
        println!("usage: cargo bench --bench plans -- DIR [FILTER]");
        return;
    };
    let filter = args.get(1).cloned().unwrap_or_default();
    let registry = Registry::with_builtins();
    stand_ins::add_missing(&registry);
    let registry = Arc::new(registry);
    let bounds: Json = read_json(&dir.join("bounds.json"));
    let plans = bounds["plans"].as_object().expect("bounds.json has plans");
    println!(
        "{:<36} {:>14} {:>14} {:>14} {:>7} {:>7} {:>9}",
        "plan", "ours", "MXNet", "bound", "/MXNet", "/bound", "seconds"
    );
    let mut ratios = Vec::new();
    for (name, versions) in plans.iter().filter(|(n, _)| n.contains(&filter)) {
        let reference = smallest(versions);
        match measure(&dir, name, &bounds["shapes"], &registry) {
            Ok((plan, seconds)) => {
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
                    ratios.push(ratio);
                }
            }
            Err(e) => println!("{name:<36} {}", e.lines().next().unwrap_or_default()),
        }
    }
    for (graph, limit, goal) in LIMITS.into_iter().filter(|(n, ..)| n.contains(&filter)) {
        let start = Instant::now();
        match limited(&dir, graph, limit, &bounds["shapes"], &registry) {
            Ok(text) => {
                println!("{graph:<36} {text} (goal {goal}) {:.2} s", start.elapsed().as_secs_f64())
            }
            Err(e) => println!("{graph:<36} {}", e.lines().next().unwrap_or_default()),
        }
    }
    let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    println!("{} .null and .write plans: geometric mean {mean:.5}, worst {worst:.5}", ratios.len());
}

/// Graphs planned under a limit; 1 byte asks for the least that can be had.
const LIMITS: [(&str, usize, &str); 7] = [
    ("memonger_resnet1001", 3_093_000_000, "3.093e9"),
    ("memonger_resnet1001", 1, "3.093e9"),
    ("resnet152", 965_000_000, "0.965e9"),
    ("resnet152", 1, "0.965e9"),
    ("lstm_4x1024_T256", 839_000_000, "0.839e9"),
    ("cm_mobilenet_b512", 1, "batch >= 1105 in 16 GiB"),
    ("cm_vgg_unet_b32", 1, "batch >= 61 in 16 GiB"),
];

fn limited(
    dir: &Path,
    graph: &str,
    limit: usize,
    shapes: &Json,
    registry: &Arc<Registry>,
) -> Result<String, String> {
    let mut request =
        training_request(dir, &format!("{graph}.json"), &shapes[graph]["inputs"], registry)?;
    request.memory_limit = Some(limit);
    match plan(&request) {
        Ok(plan) => {
            check_overlaps(&plan)?;
            Ok(format!(
                "limit {limit}: planned {}, {} nodes recomputed",
                plan.total_arena_bytes(),
                plan.recomputed_nodes
            ))
        }
        Err(e) => Ok(e.to_string()),
    }
}

fn read_json(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The smaller of the figures over MXNet's versions.
fn smallest(versions: &Json) -> Figures {
    let all = versions.as_object().into_iter().flatten();
    let least = |key: &str| {
        let values = all.clone().filter_map(|(_, v)| v[key].as_u64());
        values.min().unwrap_or(0) as usize
    };
    Figures { planned: least("planned_bytes"), bound: least("lower_bound_bytes") }
}

/// Plans `graph.how` (`resnet50.write.mirror`); the time is the best of three runs of all passes.
fn measure(
    dir: &Path,
    name: &str,
    shapes: &Json,
    registry: &Arc<Registry>,
) -> Result<(Plan, f64), String> {
    let (graph, how) = name.split_once('.').ok_or("a plan without a dot")?;
    let file = match how {
        "write.sublinear" | "write.sublinear_lb" => format!("{graph}.sublinear.json"),
        _ => format!("{graph}.json"),
    };
    let path = dir.join(&file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
    let symbol = load_json(&text, registry).map_err(|e| e.to_string())?.symbol;
    let mut request = PlanRequest::new(symbol.clone(), registry.clone());
    request.shapes = input_shapes(&symbol, &shapes[graph]["inputs"]);
    request.options.mirror = how == "write.mirror";
    let names = symbol.list_arguments();
    if how != "null" {
        let is_input =
            |n: &String| request.shapes.iter().any(|s| s.0 == *n) || n.ends_with("label");
        let req = |n| if is_input(n) { OpReq::Null } else { OpReq::Write };
        request.grad_req = names.iter().map(req).collect();
    }
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

/// Gradients for everything but inputs and labels.
fn training_request(
    dir: &Path,
    file: &str,
    inputs: &Json,
    registry: &Arc<Registry>,
) -> Result<PlanRequest, String> {
    let text = std::fs::read_to_string(dir.join(file)).map_err(|e| format!("{file}: {e}"))?;
    let symbol = load_json(&text, registry).map_err(|e| e.to_string())?.symbol;
    let mut request = PlanRequest::new(symbol.clone(), registry.clone());
    request.shapes = input_shapes(&symbol, inputs);
    let is_input = |n: &String| request.shapes.iter().any(|s| s.0 == *n) || n.ends_with("label");
    let req = |n| if is_input(n) { OpReq::Null } else { OpReq::Write };
    request.grad_req = symbol.list_arguments().iter().map(req).collect();
    Ok(request)
}

/// Shapes of the inputs; names that the symbol lacks are left out.
fn input_shapes(symbol: &Symbol, inputs: &Json) -> Vec<(String, Shape)> {
    let given = inputs.as_object().into_iter().flatten();
    let mut shapes: Vec<(String, Shape)> = given
        .filter_map(|(name, dims)| {
            let dims: Option<Vec<i64>> = dims.as_array()?.iter().map(Json::as_i64).collect();
            Some((name.clone(), Shape::new(&dims?)))
        })
        .collect();
    let names = symbol.list_arguments();
    shapes.retain(|(n, _)| names.contains(n));
    shapes
}

/// Panics by `Err` when two entries alive at once share bytes without being in place.
fn check_overlaps(plan: &Plan) -> Result<(), String> {
    let mut placed: Vec<(u32, u32, usize, usize, usize)> = Vec::new();
    let mut root: Vec<usize> = (0..plan.place.len()).collect();
    for id in 0..plan.place.len() {
        if let Some(onto) = plan.inplace_of[id] {
            root[id] = root[onto as usize];
        }
        if let Place::Arena { offset } = plan.place[id]
            && plan.bytes(id) > 0
        {
            placed.push((plan.first_use[id], plan.last_use[id], offset, plan.bytes(id), root[id]));
        }
    }
    placed.sort_unstable();
    let mut alive: Vec<(u32, u32, usize, usize, usize)> = Vec::new();
    for b in placed {
        alive.retain(|a| a.1 >= b.0);
        for a in &alive {
            if a.4 != b.4 && a.2 < b.2 + b.3 && b.2 < a.2 + a.3 {
                return Err(format!("entries overlap: {a:?} and {b:?}"));
            }
        }
        alive.push(b);
    }
    Ok(())
}
