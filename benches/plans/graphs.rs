//! The folder of graphs: symbol files, their input shapes, and the figures to compare with.

use rsnet::Shape;
use rsnet::graph::{Place, Plan, PlanRequest, Symbol, load_json};
use rsnet::operator::{OpReq, Registry};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// MXNet's figures for one plan: the smaller ones over its versions.
pub struct Figures {
    pub planned: usize,
    pub bound: usize,
}

pub struct Graphs {
    dir: PathBuf,
    shapes: Json,
    plans: Json,
    registry: Arc<Registry>,
}

impl Graphs {
    /// Reads `bounds.json`, and unpacks `graphs.tar.xz` where the symbol files lie in it.
    pub fn open(dir: &Path) -> Result<Graphs, String> {
        let mut bounds = read_json(&dir.join("bounds.json"))?;
        let registry = Arc::new(rsnet::ops::builtins());
        let (shapes, plans) = (bounds["shapes"].take(), bounds["plans"].take());
        Ok(Graphs { dir: unpacked(dir)?, shapes, plans, registry })
    }

    /// The names of all plans that MXNet's figures are known for, as `resnet50.write.mirror`.
    pub fn plans(&self) -> Vec<String> {
        self.plans.as_object().into_iter().flat_map(|p| p.keys().cloned()).collect()
    }

    pub fn figures(&self, plan: &str) -> Figures {
        let all = self.plans[plan].as_object().into_iter().flatten();
        let least = |key: &str| {
            let values = all.clone().filter_map(|(_, v)| v[key].as_u64());
            values.min().unwrap_or(0) as usize
        };
        Figures { planned: least("planned_bytes"), bound: least("lower_bound_bytes") }
    }

    /// All symbol files.
    pub fn files(&self) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(&self.dir).map_err(|e| e.to_string())?;
        let mut names: Vec<String> = entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|n| n.ends_with(".json") && n != "bounds.json" && n != "shapes.json")
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// A request for `file`: shapes of its graph's inputs, with gradients for everything but inputs
    /// and labels if `train`. Outputs lie in the arena, because MXNet's figures count them.
    pub fn request(&self, file: &str, train: bool) -> Result<PlanRequest, String> {
        let path = self.dir.join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        let symbol =
            load_json(&text, &self.registry, false, false).map_err(|e| e.to_string())?.value;
        let mut request = PlanRequest::new(symbol.clone(), self.registry.clone());
        request.options.outputs_in_arena = true;
        let graph = file.split('.').next().unwrap_or(file);
        request.shapes = input_shapes(&symbol, &self.shapes[graph]["inputs"]);
        if train {
            let is_input =
                |n: &String| request.shapes.iter().any(|s| s.0 == *n) || n.ends_with("label");
            let req = |n| if is_input(n) { OpReq::Null } else { OpReq::Write };
            request.grad_req = symbol.list_arguments().iter().map(req).collect();
        }
        Ok(request)
    }
}

fn read_json(path: &Path) -> Result<Json, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The folder with the symbol files: `dir`, or where its archive was unpacked to.
fn unpacked(dir: &Path) -> Result<PathBuf, String> {
    let archive = dir.join("graphs.tar.xz");
    if dir.join("mlp.json").exists() || !archive.exists() {
        return Ok(dir.to_owned());
    }
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("graphs");
    std::fs::create_dir_all(&to).map_err(|e| e.to_string())?;
    let done = Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(&to).status();
    match done {
        Ok(status) if status.success() => Ok(to),
        Ok(status) => Err(format!("tar -xJf {}: {status}", archive.display())),
        Err(e) => Err(format!("tar: {e}")),
    }
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

/// An error when two entries alive at once share bytes without being in place.
pub fn check_overlaps(plan: &Plan) -> Result<(), String> {
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
