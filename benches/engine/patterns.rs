//! The programs that the engine runs: which variables their tasks read and write.

use super::TASKS;

/// The variables that a task reads and writes, by index.
#[derive(Clone, Default)]
pub struct Access {
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
}

/// A program of tasks.
pub struct Pattern {
    pub name: &'static str,
    /// Number of its variables.
    pub vars: usize,
    pub tasks: Vec<Access>,
}

fn access(reads: &[usize], writes: &[usize]) -> Access {
    Access { reads: reads.to_vec(), writes: writes.to_vec() }
}

/// Two distinct reads and a write among 64 variables.
fn random64(n: usize, seed: u64) -> Vec<Access> {
    let mut x = seed;
    let mut next = move || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) as usize % 64
    };
    let mut task = || {
        let (a, mut b, mut c) = (next(), next(), next());
        while b == a {
            b = next();
        }
        while c == a || c == b {
            c = next();
        }
        access(&[a, b], &[c])
    };
    (0..n).map(|_| task()).collect()
}

/// The programs that are measured.
pub fn patterns() -> Vec<Pattern> {
    let indep = (0..TASKS).map(|i| access(&[], &[i])).collect();
    let chain = (0..TASKS).map(|_| access(&[], &[0])).collect();
    let forkjoin = (0..TASKS)
        .map(|i| if i % 17 == 0 { access(&[], &[0]) } else { access(&[0], &[i % 17]) })
        .collect();
    let graph = random64(1000, 7);
    vec![
        Pattern { name: "indep", vars: TASKS, tasks: indep },
        Pattern { name: "chain", vars: 1, tasks: chain },
        Pattern { name: "random64", vars: 64, tasks: random64(TASKS, 1) },
        Pattern { name: "forkjoin16", vars: 17, tasks: forkjoin },
        Pattern {
            name: "graph1000",
            vars: 64,
            tasks: graph.iter().cycle().take(TASKS).cloned().collect(),
        },
    ]
}
