//! Slices by number or by coordinates, and the sums of those that name one place.

use super::order::{Ordered, SORTING};
use super::{FLOATS, KernelsOf, NUMBERS, add, kernel, wanted};
use crate::args;
use crate::dtype::DType;
use crate::error::Result;
use crate::operator::{Argument, Call, Grid, Kernel, Launcher};
use crate::shape::Shape;
use crate::tensor::View;

/// The extents that coordinates count in: `Coordinates` of `scatter.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Coordinates {
    axes: i64,
    columns: i64,
    extent: [i64; 8],
    steps: [i64; 8],
}

// SAFETY: numbers, as in CUDA source.
unsafe impl Argument for Coordinates {}

impl Coordinates {
    /// Most axes that coordinates count.
    const MOST: usize = 8;

    /// Coordinates in the columns of `indices` over the first axes of `whole`, and the length of
    /// the slices that they name.
    fn over(whole: &Shape, indices: &View) -> Result<(Self, usize)> {
        let axes = indices.dims()[0] as usize;
        if axes > Self::MOST {
            return Err(super::too_many_axes());
        }
        let length = whole.product(axes..whole.ndim());
        let (mut extent, mut steps) = ([0; 8], [0; 8]);
        for axis in 0..axes {
            extent[axis] = whole.dims()[axis];
            steps[axis] = whole.product(axis + 1..axes) as i64;
        }
        let columns = indices.shape().product(1..indices.ndim()) as i64;
        Ok((Coordinates { axes: axes as i64, columns, extent, steps }, length))
    }
}

/// The functions that sort places, the first of a kernel: of whole numbers, whatever the dtypes of
/// the call. Then come the one that finds the places and the one that uses their order.
pub fn sorting() -> [String; 2] {
    SORTING.map(|name| name.replace("$0", "Index"))
}

const PLACES: usize = 2;
const USE: usize = 3;

/// The places of slices in memory of the device, in order.
pub struct Places {
    at: *mut u8,
    order: *mut u8,
    count: usize,
}

impl Places {
    /// Sorts `count` places, which `find` launches a function to write.
    fn sorted(
        launcher: &mut dyn Launcher,
        count: usize,
        find: impl FnOnce(&mut dyn Launcher, *mut u8) -> Result<()>,
    ) -> Result<Self> {
        let at = launcher.memory().take(count * size_of::<i64>())?;
        find(launcher, at)?;
        // SAFETY: memory of the device, of which only the address is used.
        let view = unsafe { View::flat(at, count, DType::I64) };
        let order = Ordered::of(launcher, &view, Some(0), true)?.order;
        Ok(Places { at, order, count })
    }

    /// The places that numbers name on an axis.
    pub fn by_number(
        launcher: &mut dyn Launcher,
        numbers: &View,
        extent: usize,
        mode: i32,
    ) -> Result<Self> {
        let n = numbers.size();
        Self::sorted(launcher, n, |launcher, at| {
            let mut args = args![n as i64, extent as i64, numbers.ptr(), at, mode];
            launcher.launch(PLACES, Grid::over(n), &mut args)
        })
    }

    fn by_coordinates(launcher: &mut dyn Launcher, c: Coordinates, indices: &View) -> Result<Self> {
        let n = c.columns as usize;
        Self::sorted(launcher, n, |launcher, at| {
            launcher.launch(PLACES, Grid::over(n), &mut args![c, indices.ptr(), at])
        })
    }

    /// Adds the slices of `g` (outer, count, inner) to those of `x` (outer, extent, inner).
    pub fn add(
        &self,
        launcher: &mut dyn Launcher,
        [extent, inner]: [usize; 2],
        g: &View,
        x: &View,
    ) -> Result<()> {
        let [n, taken, extent, inner] =
            [g.size(), self.count, extent, inner].map(|count| count as i64);
        let mut args = args![n, taken, extent, inner, self.at, self.order, g.ptr(), x.ptr()];
        launcher.launch(USE, Grid::over(g.size()), &mut args)
    }

    /// Puts the slices of `from`, of `inner` elements, at their places.
    fn put(
        &self,
        launcher: &mut dyn Launcher,
        inner: usize,
        from: &View,
        to: &View,
        add: i32,
    ) -> Result<()> {
        let [n, taken, inner] = [from.size(), self.count, inner].map(|count| count as i64);
        let mut args = args![n, taken, inner, self.at, self.order, from.ptr(), to.ptr(), add];
        launcher.launch(USE, Grid::over(from.size()), &mut args)
    }
}

fn gather_nd() -> Vec<Kernel> {
    let types: &[(&str, &'static [DType])] = &[("data", NUMBERS), ("indices", NUMBERS)];
    vec![kernel("scatter", &["gather<$0, $1>"], types, |call, launcher| {
        let ([x, indices], y) = ([0, 1].map(|i| &call.inputs[i]), &call.outputs[0]);
        let ((c, length), n) = (Coordinates::over(x.shape(), indices)?, y.size());
        let mut args =
            args![n as i64, length as i64, c, x.ptr(), indices.ptr(), y.ptr(), add(call, 0)];
        launcher.launch(0, Grid::over(n), &mut args)
    })]
}

/// Adds the slices of `from` to the output at their coordinates; the output is zeroed first unless
/// the request is to add.
fn add_at(call: &Call<'_>, launcher: &mut dyn Launcher, from: &View, indices: &View) -> Result<()> {
    let to = &call.outputs[0];
    if add(call, 0) == 0 {
        launcher.clear(to.ptr(), to.size_bytes())?;
    }
    if from.size() == 0 {
        return Ok(());
    }
    let (c, length) = Coordinates::over(to.shape(), indices)?;
    let places = Places::by_coordinates(launcher, c, indices)?;
    places.add(launcher, [to.size() / length.max(1), length], from, to)
}

/// Kernels that sort coordinates, whose dtype is the second of `types`.
fn sorting_coordinates(
    types: [(&'static str, &'static [DType]); 2],
    with: &str,
    issue: fn(&Call<'_>, &mut dyn Launcher) -> Result<()>,
) -> Vec<Kernel> {
    let [spans, steps] = sorting();
    let functions = [&*spans, &steps, "places_by_coordinates<$1>", with];
    vec![Kernel::cuda("scatter", &functions, &types, issue)]
}

fn gather_nd_back() -> Vec<Kernel> {
    let types = [("data", FLOATS), ("input1", NUMBERS)];
    sorting_coordinates(types, "add_slices<$0>", |call, launcher| {
        if wanted(call, 1) && add(call, 1) == 0 {
            launcher.clear(call.outputs[1].ptr(), call.outputs[1].size_bytes())?;
        }
        match wanted(call, 0) {
            true => add_at(call, launcher, &call.inputs[0], &call.inputs[1]),
            false => Ok(()),
        }
    })
}

fn scatter_sums() -> Vec<Kernel> {
    let types = [("data", NUMBERS), ("indices", NUMBERS)];
    sorting_coordinates(types, "add_slices<$0>", |call, launcher| match wanted(call, 0) {
        true => add_at(call, launcher, &call.inputs[0], &call.inputs[1]),
        false => Ok(()),
    })
}

fn put_at(call: &Call<'_>, launcher: &mut dyn Launcher, from: &View, by: &View) -> Result<()> {
    let to = &call.outputs[0];
    if from.size() == 0 {
        return Ok(());
    }
    let (c, length) = Coordinates::over(to.shape(), by)?;
    Places::by_coordinates(launcher, c, by)?.put(launcher, length, from, to, add(call, 0))
}

fn scatter_nd() -> Vec<Kernel> {
    let types = [("data", NUMBERS), ("indices", NUMBERS)];
    sorting_coordinates(types, "put_slices<$0>", |call, launcher| {
        let to = &call.outputs[0];
        if !wanted(call, 0) {
            return Ok(());
        }
        if add(call, 0) == 0 {
            launcher.clear(to.ptr(), to.size_bytes())?;
        }
        put_at(call, launcher, &call.inputs[0], &call.inputs[1])
    })
}

fn scatter_set_nd() -> Vec<Kernel> {
    let types = [("lhs", NUMBERS), ("indices", NUMBERS)];
    let made = sorting_coordinates(types, "put_slices<$0>", |call, launcher| {
        let (x, to) = (&call.inputs[0], &call.outputs[0]);
        if !wanted(call, 0) {
            return Ok(());
        }
        if x.ptr() != to.ptr() {
            launcher.copy(to.ptr(), x.ptr(), to.size_bytes())?;
        }
        put_at(call, launcher, &call.inputs[1], &call.inputs[2])
    });
    made.into_iter().map(Kernel::only_writes).collect()
}

pub const TABLE: &[KernelsOf] = &[
    ("gather_nd", gather_nd),
    ("_backward_gather_nd_grad", gather_nd_back),
    ("_backward_gather_nd", scatter_sums),
    ("scatter_nd", scatter_nd),
    ("_scatter_set_nd", scatter_set_nd),
];
