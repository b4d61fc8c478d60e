//! The gates of one sequence at one time, forward and backward, for every cell.
//!
//! All are element-wise over rows of `hid` elements; a row of gates holds them one after the other.
//! Elements are read into blocks of [`LANES`], calculated, and written, so that the compiler
//! vectorises without checking which of the many rows might overlap. The bodies are functions, not
//! closures: see [`crate::simd`].

use crate::kernels::real::Real;

/// Elements calculated together.
const LANES: usize = 16;

/// The first `n` elements at `from`, the rest 0.
///
/// # Safety
/// `from` holds `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn load<T: Real>(from: *const T, n: usize) -> [T; LANES] {
    let mut block = [T::zero(); LANES];
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, block.as_mut_ptr(), n) };
    block
}

/// Writes the first `n` elements of a block.
///
/// # Safety
/// `to` has room for `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn store<T: Real>(block: &[T; LANES], to: *mut T, n: usize) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), to, n) };
}

#[inline(always)]
fn sigmoid<T: Real, const FUSED: bool>(x: T) -> T {
    T::one() / (T::one() + (-x).quick_exp::<FUSED>())
}

/// Runs `$lanes` with `$j` at the start of every block of `0..$hid` and `$n` its size: a constant
/// but for the last, so that full blocks move as vectors.
macro_rules! blocks {
    ($hid:expr, $j:ident, $n:ident => $lanes:expr) => {{
        let whole = $hid / LANES * LANES;
        for $j in (0..whole).step_by(LANES) {
            const $n: usize = LANES;
            $lanes
        }
        if whole < $hid {
            #[allow(non_snake_case)] // named as the constant is
            let ($j, $n) = (whole, $hid - whole);
            $lanes
        }
    }};
}

crate::simd! {
    /// Vanilla: `h = tanh(g)`, or the positive part; `g` becomes `h`, too.
    ///
    /// # Safety
    /// Both rows hold `hid` elements and do not overlap.
    pub unsafe fn vanilla[T: Real][T](g: *mut T, h: *mut T, hid: usize, tanh: bool) -> () {
        // SAFETY: promised by the caller; blocks end at `hid`.
        unsafe { blocks!(hid, j, N => vanilla_lanes::<T, FUSED>(g.add(j), h.add(j), N, tanh)) }
    }

    /// LSTM: `g` holds i, f, g, o before their activations and is activated; `old` is the cell
    /// state before, `cell` after; `h` is the hidden state.
    ///
    /// # Safety
    /// `g` holds `4 * hid` elements, the others `hid`; outputs overlap nothing else.
    pub unsafe fn lstm[T: Real][T](
        g: *mut T, old: *const T, cell: *mut T, h: *mut T, hid: usize, clip: Option<(T, T)>,
    ) -> () {
        // SAFETY: promised by the caller; blocks end at `hid`.
        unsafe {
            blocks!(hid, j, N =>
                lstm_lanes::<T, FUSED>(g.add(j), old.add(j), cell.add(j), h.add(j), hid, N, clip))
        }
    }

    /// GRU: `g` holds r, z and the input's part of n and is activated; `inner` is the recurrent
    /// part of n; `old` is the state before, `h` after.
    ///
    /// # Safety
    /// `g` holds `3 * hid` elements, the others `hid`; outputs overlap nothing else.
    pub unsafe fn gru[T: Real][T](
        g: *mut T, inner: *const T, old: *const T, h: *mut T, hid: usize,
    ) -> () {
        // SAFETY: promised by the caller; blocks end at `hid`.
        unsafe {
            blocks!(hid, j, N =>
                gru_lanes::<T, FUSED>(g.add(j), inner.add(j), old.add(j), h.add(j), hid, N))
        }
    }

    /// `to += from`.
    ///
    /// # Safety
    /// Both hold `n` elements and do not overlap.
    pub unsafe fn add[T: Real][T](from: *const T, to: *mut T, n: usize) -> () {
        // SAFETY: promised by the caller.
        let (from, to) = unsafe {
            (std::slice::from_raw_parts(from, n), std::slice::from_raw_parts_mut(to, n))
        };
        for (to, &from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }

    /// Backward of [`vanilla`] from the activated gate `g`; `dh` is read and zeroed.
    ///
    /// # Safety
    /// As [`vanilla`].
    pub unsafe fn vanilla_back[T: Real][T](
        g: *const T, dh: *mut T, dg: *mut T, hid: usize, tanh: bool,
    ) -> () {
        // SAFETY: promised by the caller; blocks end at `hid`.
        unsafe { blocks!(hid, j, N => vanilla_back_lanes(g.add(j), dh.add(j), dg.add(j), N, tanh)) }
    }

    /// Backward of [`lstm`] from its activated gates and cell states: `dg` is written, `dc` is
    /// carried to the previous time, `dh` is read and zeroed, as all of it passes through the
    /// gates.
    ///
    /// # Safety
    /// As [`lstm`]; `dg` holds `4 * hid` elements.
    pub unsafe fn lstm_back[T: Real][T](
        g: *const T, old: *const T, cell: *const T, dh: *mut T, dc: *mut T, dg: *mut T,
        hid: usize, clip: Option<(T, T)>,
    ) -> () {
        // SAFETY: promised by the caller; blocks end at `hid`.
        unsafe {
            blocks!(hid, j, N => lstm_back_lanes::<T, FUSED>(
                g.add(j), old.add(j), cell.add(j), dh.add(j), dc.add(j), dg.add(j), hid, N, clip
            ))
        }
    }

    /// Backward of [`gru`]: `dg` is written for the input's parts, `dn` for the recurrent part of n
    /// (r and z have one gradient for both); the direct gradient of the previous state stays in
    /// `dh`.
    ///
    /// # Safety
    /// As [`gru`]; `dg` holds `3 * hid` elements.
    pub unsafe fn gru_back[T: Real][T](
        g: *const T, inner: *const T, old: *const T, dh: *mut T, dg: *mut T, dn: *mut T,
        hid: usize,
    ) -> () {
        // SAFETY: promised by the caller; blocks end at `hid`.
        unsafe {
            blocks!(hid, j, N => gru_back_lanes(
                g.add(j), inner.add(j), old.add(j), dh.add(j), dg.add(j), dn.add(j), hid, N
            ))
        }
    }
}

/// Up to `LANES` elements of [`vanilla`].
///
/// # Safety
/// As there, for `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn vanilla_lanes<T: Real, const FUSED: bool>(g: *mut T, h: *mut T, n: usize, tanh: bool) {
    // SAFETY: promised by the caller: `n` elements at both.
    unsafe {
        let mut a = load(g, n);
        if tanh {
            for a in &mut a {
                *a = a.quick_tanh::<FUSED>();
            }
        } else {
            for a in &mut a {
                *a = a.max(T::zero());
            }
        }
        store(&a, g, n);
        store(&a, h, n);
    }
}

/// Up to `LANES` elements of [`lstm`].
///
/// # Safety
/// As there, for `n` elements, at most `LANES`, of gates `hid` apart.
#[inline(always)]
unsafe fn lstm_lanes<T: Real, const FUSED: bool>(
    g: *mut T,
    old: *const T,
    cell: *mut T,
    h: *mut T,
    hid: usize,
    n: usize,
    clip: Option<(T, T)>,
) {
    // SAFETY: promised by the caller: `n` elements at all, and `hid` from one gate to the next.
    unsafe {
        let (mut i, mut f) = (load(g, n), load(g.add(hid), n));
        let (mut new, mut o) = (load(g.add(2 * hid), n), load(g.add(3 * hid), n));
        let mut c = load(old, n);
        for l in 0..LANES {
            i[l] = sigmoid::<T, FUSED>(i[l]);
        }
        for l in 0..LANES {
            f[l] = sigmoid::<T, FUSED>(f[l]);
        }
        for l in 0..LANES {
            new[l] = new[l].quick_tanh::<FUSED>();
        }
        for l in 0..LANES {
            o[l] = sigmoid::<T, FUSED>(o[l]);
        }
        for l in 0..LANES {
            c[l] = f[l] * c[l] + i[l] * new[l];
        }
        if let Some((low, high)) = clip {
            for c in &mut c {
                *c = c.max(low).min(high);
            }
        }
        store(&i, g, n);
        store(&f, g.add(hid), n);
        store(&new, g.add(2 * hid), n);
        store(&o, g.add(3 * hid), n);
        store(&c, cell, n);
        for l in 0..LANES {
            c[l] = o[l] * c[l].quick_tanh::<FUSED>();
        }
        store(&c, h, n);
    }
}

/// Up to `LANES` elements of [`gru`].
///
/// # Safety
/// As there, for `n` elements, at most `LANES`, of gates `hid` apart.
#[inline(always)]
unsafe fn gru_lanes<T: Real, const FUSED: bool>(
    g: *mut T,
    inner: *const T,
    old: *const T,
    h: *mut T,
    hid: usize,
    n: usize,
) {
    // SAFETY: promised by the caller: `n` elements at all, and `hid` from one gate to the next.
    unsafe {
        let (mut r, mut z, mut new) = (load(g, n), load(g.add(hid), n), load(g.add(2 * hid), n));
        let (inner, mut h_new) = (load(inner, n), load(old, n));
        for l in 0..LANES {
            r[l] = sigmoid::<T, FUSED>(r[l]);
        }
        for l in 0..LANES {
            z[l] = sigmoid::<T, FUSED>(z[l]);
        }
        for l in 0..LANES {
            new[l] = (new[l] + r[l] * inner[l]).quick_tanh::<FUSED>();
        }
        for l in 0..LANES {
            h_new[l] = (T::one() - z[l]) * new[l] + z[l] * h_new[l];
        }
        store(&r, g, n);
        store(&z, g.add(hid), n);
        store(&new, g.add(2 * hid), n);
        store(&h_new, h, n);
    }
}

/// Up to `LANES` elements of [`vanilla_back`].
///
/// # Safety
/// As there, for `n` elements, at most `LANES`.
#[inline(always)]
unsafe fn vanilla_back_lanes<T: Real>(g: *const T, dh: *mut T, dg: *mut T, n: usize, tanh: bool) {
    // SAFETY: promised by the caller: `n` elements at all.
    unsafe {
        let (g, mut d) = (load(g, n), load(dh, n));
        for l in 0..LANES {
            d[l] = if tanh {
                d[l] * (T::one() - g[l] * g[l])
            } else if g[l] > T::zero() {
                d[l]
            } else {
                T::zero()
            };
        }
        store(&d, dg, n);
        store(&[T::zero(); LANES], dh, n);
    }
}

/// Up to `LANES` elements of [`lstm_back`].
///
/// # Safety
/// As there, for `n` elements, at most `LANES`, of gates `hid` apart.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "every operand of a cell has an address")]
unsafe fn lstm_back_lanes<T: Real, const FUSED: bool>(
    g: *const T,
    old: *const T,
    cell: *const T,
    dh: *mut T,
    dc: *mut T,
    dg: *mut T,
    hid: usize,
    n: usize,
    clip: Option<(T, T)>,
) {
    let one = T::one();
    // SAFETY: promised by the caller: `n` elements at all, and `hid` from one gate to the next.
    unsafe {
        let (mut i, mut f) = (load(g, n), load(g.add(hid), n));
        let (mut new, mut o) = (load(g.add(2 * hid), n), load(g.add(3 * hid), n));
        let (old, cell, d_h, mut d) = (load(old, n), load(cell, n), load(dh, n), load(dc, n));
        let mut squashed = cell;
        for s in &mut squashed {
            *s = s.quick_tanh::<FUSED>();
        }
        for l in 0..LANES {
            d[l] += d_h[l] * o[l] * (one - squashed[l] * squashed[l]);
        }
        // A clipped value passes no gradient.
        if let Some((low, high)) = clip {
            for l in 0..LANES {
                d[l] = if cell[l] <= low || cell[l] >= high { T::zero() } else { d[l] };
            }
        }
        for l in 0..LANES {
            o[l] = d_h[l] * squashed[l] * o[l] * (one - o[l]);
            let (in_gate, forget, value) = (i[l], f[l], new[l]);
            i[l] = d[l] * value * in_gate * (one - in_gate);
            f[l] = d[l] * old[l] * forget * (one - forget);
            new[l] = d[l] * in_gate * (one - value * value);
            d[l] *= forget;
        }
        store(&i, dg, n);
        store(&f, dg.add(hid), n);
        store(&new, dg.add(2 * hid), n);
        store(&o, dg.add(3 * hid), n);
        store(&d, dc, n);
        store(&[T::zero(); LANES], dh, n);
    }
}

/// Up to `LANES` elements of [`gru_back`].
///
/// # Safety
/// As there, for `n` elements, at most `LANES`, of gates `hid` apart.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "every operand of a cell has an address")]
unsafe fn gru_back_lanes<T: Real>(
    g: *const T,
    inner: *const T,
    old: *const T,
    dh: *mut T,
    dg: *mut T,
    dn: *mut T,
    hid: usize,
    n: usize,
) {
    let one = T::one();
    // SAFETY: promised by the caller: `n` elements at all, and `hid` from one gate to the next.
    unsafe {
        let (mut r, mut z, mut new) = (load(g, n), load(g.add(hid), n), load(g.add(2 * hid), n));
        let (inner, old, mut d) = (load(inner, n), load(old, n), load(dh, n));
        let mut recurrent = [T::zero(); LANES];
        for l in 0..LANES {
            let (reset, update, value, d_h) = (r[l], z[l], new[l], d[l]);
            let through = d_h * (one - update) * (one - value * value);
            new[l] = through;
            recurrent[l] = through * reset;
            r[l] = through * inner[l] * reset * (one - reset);
            z[l] = d_h * (old[l] - value) * update * (one - update);
            d[l] = d_h * update;
        }
        store(&r, dg, n);
        store(&z, dg.add(hid), n);
        store(&new, dg.add(2 * hid), n);
        store(&recurrent, dn, n);
        store(&d, dh, n);
    }
}
