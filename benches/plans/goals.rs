//! Plans under a limit, the largest batches that fit a device, and every file in every form.

use super::graphs::{Graphs, check_overlaps};
use rsnet::Shape;
use rsnet::graph::{Plan, PlanRequest, plan};
use std::collections::BTreeMap;
use std::time::Instant;

/// Graphs with the most bytes that their plans may take; each is planned under that limit, and
/// under one of 1 byte, which asks for the least that is found.
const LIMITS: [(&str, usize); 3] = [
    ("memonger_resnet1001", 3_093_000_000),
    ("resnet152", 965_000_000),
    ("lstm_4x1024_T256", 839_000_000),
];
/// Graphs with the batch size that must fit a device of [`DEVICE_BYTES`].
const BATCHES: [(&str, usize); 2] = [("cm_mobilenet_b512", 1105), ("cm_vgg_unet_b32", 61)];
const DEVICE_BYTES: usize = 16 << 30;

/// Plans under limits; every plan is checked to run no forward node more than twice. Returns the
/// goals that are missed.
pub fn limits(graphs: &Graphs, filter: &str) -> Vec<String> {
    let mut missed = Vec::new();
    let wanted = LIMITS.into_iter().filter(|l| l.0.contains(filter));
    for (graph, goal, limit) in wanted.flat_map(|(g, goal)| [(g, goal, goal), (g, goal, 1)]) {
        let start = Instant::now();
        let made = graphs.request(&format!("{graph}.json"), true).and_then(|mut request| {
            request.memory_limit = Some(limit);
            least(&request)
        });
        let seconds = start.elapsed().as_secs_f64();
        let met = made.as_ref().is_ok_and(|(bytes, _)| *bytes <= goal);
        let text = match made {
            Ok((bytes, recomputed)) => format!("planned {bytes}, {recomputed} nodes recomputed"),
            Err(e) => e,
        };
        let line = format!("{graph:<36} limit {limit}: {text} (goal {goal})");
        println!("{line} {seconds:.2} s");
        if !met {
            missed.push(line);
        }
    }
    missed
}

/// The bytes of the plan within the request's limit and how many nodes it computes again; where no
/// plan fits, the least that the error names.
fn least(request: &PlanRequest) -> Result<(usize, String), String> {
    match plan(request) {
        Ok(plan) => {
            check_overlaps(&plan)?;
            check_repeats(&plan)?;
            Ok((plan.total_arena_bytes(), plan.recomputed_nodes.to_string()))
        }
        Err(e) => {
            let text = e.to_string();
            let bytes = text.rsplit(" is ").next().and_then(|t| t.split(' ').next()?.parse().ok());
            Ok((bytes.ok_or(text)?, "as many as it takes of the".into()))
        }
    }
}

fn check_repeats(plan: &Plan) -> Result<(), String> {
    let mut copies: BTreeMap<u32, usize> = BTreeMap::new();
    for of in plan.graph.nodes.iter().filter_map(|n| n.mirror_of) {
        *copies.entry(of).or_default() += 1;
    }
    match copies.into_iter().find(|c| c.1 > 1) {
        Some((node, n)) => {
            Err(format!("'{}' is computed {} times", plan.graph.nodes[node as usize].name, n + 1))
        }
        None => Ok(()),
    }
}

/// The largest batch whose plan fits, two copies of the parameters included. Returns the goals that
/// are missed.
pub fn batches(graphs: &Graphs, filter: &str) -> Vec<String> {
    let mut missed = Vec::new();
    for (graph, goal) in BATCHES.into_iter().filter(|b| b.0.contains(filter)) {
        let start = Instant::now();
        let mut fits = 0;
        let text = match graphs.request(&format!("{graph}.json"), true) {
            Ok(request) => {
                let mut too_many = goal * 2;
                while too_many - fits > 1 {
                    let batch = (fits + too_many) / 2;
                    match fits_device(&request, batch) {
                        Ok(true) => fits = batch,
                        _ => too_many = batch,
                    }
                }
                format!("batch {fits} fits 16 GiB (goal {goal})")
            }
            Err(e) => e,
        };
        println!("{graph:<36} {text} {:.2} s", start.elapsed().as_secs_f64());
        if fits < goal {
            missed.push(format!("{graph}: {text}"));
        }
    }
    missed
}

fn fits_device(request: &PlanRequest, batch: usize) -> Result<bool, String> {
    let mut request = request.clone();
    for (_, shape) in &mut request.shapes {
        let mut dims = shape.dims().to_vec();
        dims[0] = batch as i64;
        *shape = Shape::new(&dims);
    }
    let inferred = request.symbol.infer_shape(&request.shapes, false).map_err(|e| e.to_string())?;
    let is_parameter =
        |name: &String| !name.ends_with("label") && request.shapes.iter().all(|s| s.0 != *name);
    let names = request.symbol.list_arguments();
    let parameters: usize = names
        .iter()
        .zip(&inferred.args)
        .filter(|(name, _)| is_parameter(name))
        .map(|(_, shape)| shape.size() * size_of::<f32>())
        .sum();
    request.memory_limit = DEVICE_BYTES.checked_sub(2 * parameters);
    let Ok(made) = plan(&request) else { return Ok(false) };
    check_overlaps(&made)?;
    check_repeats(&made)?;
    Ok(made.total_arena_bytes() + 2 * parameters <= DEVICE_BYTES)
}

/// Every file of both formats loads, infers and plans, for inference and for training.
pub fn forms(graphs: &Graphs, filter: &str) -> Result<(), String> {
    let files = graphs.files()?;
    let mut done = [0usize; 2];
    let mut failed = Vec::new();
    for file in files.iter().filter(|f| f.contains(filter)) {
        for train in [false, true] {
            let made = graphs
                .request(file, train)
                .and_then(|request| plan(&request).map_err(|e| e.to_string()))
                .and_then(|plan| check_overlaps(&plan));
            match made {
                Ok(()) => done[usize::from(file.ends_with(".v08.json"))] += 1,
                Err(e) => failed.push(format!("{file}, training {train}: {e}")),
            }
        }
    }
    println!("{} plans of current files and {} of 0.8 files are made", done[0], done[1]);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
