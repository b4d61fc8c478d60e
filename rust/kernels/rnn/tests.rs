//! A layer against the scalar one, and its gradients against differences of that.

use super::*;
use crate::fork_join::tests::in_team;
use crate::kernels::naive;
use proptest::prelude::*;

/// Everything a layer reads, one after the other in one vector, and how much each part has.
struct Parts {
    all: Vec<f64>,
    sizes: [usize; 8],
}

impl Parts {
    fn new(l: &Layer<'_>, projects: bool, seed: u64) -> Self {
        let width = l.cell.gates() * l.hidden;
        let sizes = [
            l.time * l.batch * l.input,
            width * l.input,
            width * l.state,
            if projects { l.state * l.hidden } else { 0 },
            width,
            width,
            l.batch * l.state,
            l.batch * l.cells(),
        ];
        Parts { all: naive::noise(sizes.iter().sum(), seed), sizes }
    }

    /// Data, weights, and the first states.
    fn split<'a>(&self, mut all: &'a [f64]) -> (&'a [f64], Weights<&'a [f64]>, [&'a [f64]; 2]) {
        let [x, input, recurrent, projection, input_bias, recurrent_bias, h, c] =
            self.sizes.map(|n| all.split_off(..n).unwrap());
        (x, Weights { input, recurrent, projection, input_bias, recurrent_bias }, [h, c])
    }
}

fn cells() -> impl Strategy<Value = Cell> {
    prop_oneof![Just(Cell::Relu), Just(Cell::Tanh), Just(Cell::Lstm), Just(Cell::Gru)]
}

proptest! {
    #[test]
    fn layer_matches_naive(
        cell in cells(), time in 0usize..4, batch in 0usize..40, input in 1usize..4,
        hidden in 1usize..40, state in 1usize..4, projects: bool, reverse: bool, ragged: bool,
        clips: bool, seed: u64,
    ) {
        let projects = projects && cell == Cell::Lstm;
        let lengths: Vec<usize> = (0..batch).map(|n| n % (time + 2)).collect();
        let l = Layer {
            cell, time, batch, input, hidden, reverse,
            state: if projects { state } else { hidden },
            lengths: ragged.then_some(&lengths[..]),
            clip: clips.then_some((-0.3, 0.2)),
        };
        let parts = Parts::new(&l, projects, seed);
        let (x, w, [h0, c0]) = parts.split(&parts.all);
        let st = l.state;

        // The outputs are the second and following columns of wider rows.
        let (mut h, mut c) = (h0.to_vec(), c0.to_vec());
        let mut wide = vec![7.0; time * batch * (st + 2)];
        let to = Columns { all: &mut wide[..], first: 1, width: st + 2 };
        let tape = l.forward(x, &w, &mut h, &mut c, to);
        let (want, want_h, want_c) = naive::rnn(&l, x, &w, h0, c0);
        let got: Vec<f64> = wide.chunks(st + 2).flat_map(|row| row[1..=st].to_vec()).collect();
        prop_assert!(naive::close(&got, &want, 1e-11));
        prop_assert!(naive::close(&h, &want_h, 1e-11) && naive::close(&c, &want_c, 1e-11));
        prop_assert!(wide.chunks(st + 2).all(|row| row[0] == 7.0 && row[st + 1] == 7.0));

        // The derivative along one direction of everything at once.
        let dwide = naive::noise(wide.len(), seed ^ 1);
        let (dh0, dc0) = (naive::noise(h.len(), seed ^ 2), naive::noise(c.len(), seed ^ 3));
        let (mut dh, mut dc) = (dh0.clone(), dc0.clone());
        let mut grads: Vec<Vec<f64>> = parts.sizes.map(|n| vec![0.0; n]).into();
        {
            let [dx, a, b, p, e, f, ..] = &mut grads[..] else { unreachable!() };
            let mut dw = Weights {
                input: &mut a[..], recurrent: &mut b[..], projection: &mut p[..],
                input_bias: &mut e[..], recurrent_bias: &mut f[..],
            };
            let from = Columns { all: &dwide[..], first: 1, width: st + 2 };
            l.backward(x, &w, &tape, from, &mut dh, &mut dc, dx, &mut dw);
        }
        (grads[6], grads[7]) = (dh, dc);
        let along = naive::noise(parts.all.len(), seed ^ 4);
        let inner = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let got = inner(&grads.concat(), &along);
        let dout: Vec<f64> = dwide.chunks(st + 2).flat_map(|row| row[1..=st].to_vec()).collect();
        let loss = |step: f64| {
            let at: Vec<f64> = parts.all.iter().zip(&along).map(|(x, a)| x + step * a).collect();
            let (x, w, [h0, c0]) = parts.split(&at);
            let (out, h, c) = naive::rnn(&l, x, &w, h0, c0);
            inner(&out, &dout) + inner(&h, &dh0) + inner(&c, &dc0)
        };
        // Where the function has a kink in between, the two sides differ.
        let step = 1e-6;
        let (ahead, behind) = ((loss(step) - loss(0.0)) / step, (loss(0.0) - loss(-step)) / step);
        let scale = ahead.abs().max(1.0) * 1e-3;
        prop_assume!((ahead - behind).abs() < scale);
        prop_assert!((got - 0.5 * (ahead + behind)).abs() < scale, "{got} {ahead} {behind}");
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let (time, batch, input, hidden) = (5, 37, 20, 130);
    let l = Layer {
        cell: Cell::Gru,
        time,
        batch,
        input,
        hidden,
        state: hidden,
        reverse: true,
        lengths: None,
        clip: None,
    };
    let parts = Parts::new(&l, false, 3);
    let run = || {
        let (x, w, [h, _]) = parts.split(&parts.all);
        let (mut h, mut out) = (h.to_vec(), vec![0.0; time * batch * hidden]);
        let to = Columns { all: &mut out[..], first: 0, width: hidden };
        l.forward(x, &w, &mut h, &mut [], to);
        out
    };
    let serial = run();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    assert_eq!(pool.install(|| in_team(run)), serial);
}
