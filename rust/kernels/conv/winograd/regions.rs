//! Which tiles are processed together.

use super::Geometry;
use super::tiles::Area;
use std::ops::Range;

/// An area of tiles of some output slices. With several taps on the depth axis, these are slices of
/// one image, and each tap after the first reads one more input slice.
///
/// Tiles are numbered slice by slice, so from one tap to the next they are the same number on.
#[derive(Clone, Debug)]
pub struct Region {
    pub slices: Range<usize>,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// Taps on the depth axis.
    pub taps: usize,
}

impl Region {
    /// Rows and columns of tiles of a slice.
    pub fn area(&self) -> Area<'_> {
        [&self.rows, &self.columns]
    }

    /// Tiles of a slice.
    pub fn tiles_each(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Tiles of the output.
    pub fn tiles(&self) -> usize {
        self.slices.len() * self.tiles_each()
    }

    /// Input slices.
    pub fn inputs(&self) -> usize {
        self.slices.len() + self.taps - 1
    }

    /// Tiles of the input.
    pub fn tiles_read(&self) -> usize {
        self.inputs() * self.tiles_each()
    }

    /// The first element of an input slice; `None` for padding.
    pub fn read_at(&self, geometry: &Geometry, input: usize, channel: usize) -> Option<usize> {
        match self.taps {
            1 => geometry.read_at(self.slices.start + input, 0, channel),
            _ => geometry.read_at(self.slices.start, input, channel),
        }
    }

    /// The first element of an output slice.
    pub fn written_at(&self, geometry: &Geometry, output: usize, channel: usize) -> usize {
        geometry.written_at(self.slices.start + output, channel)
    }
}

/// All tiles in regions of about equal size.
pub struct Regions {
    /// Output slices that may share a region (all, or those of an image), and how many such runs
    /// there are.
    run: usize,
    runs: usize,
    slices_each: usize,
    /// Rows and columns of tiles, of a slice and of a region.
    tiles: [usize; 2],
    tiles_each: [usize; 2],
    taps: usize,
}

impl Regions {
    /// Regions that read about `most` tiles; at least one tile of one output slice, or those that
    /// lie between one another: the outputs of a region have no gaps.
    pub fn new(geometry: &Geometry, most: usize) -> Self {
        let ([rows, columns], taps) = (geometry.tiles(), geometry.depth.kernel);
        let [down, across] = geometry.dilate;
        let (run, runs) = match taps {
            1 => (geometry.slices(), 1),
            _ => (geometry.depth.output, geometry.batch),
        };
        // Of several taps, regions of few rows and several slices transform fewer tiles twice.
        let inputs = if taps == 1 { 1 } else { run.min(taps + 1) + taps - 1 };
        let fitting = most / inputs;
        // Long lines first: outputs are reported line by line.
        let columns_each = across * even(columns.div_ceil(across), fitting / across / down);
        let rows_each = down * even(rows.div_ceil(down), fitting / columns_each / down);
        let (rows_each, columns_each) = (rows_each.min(rows), columns_each.min(columns));
        let tiles_each = [rows_each, columns_each];
        let slices_each = match tiles_each == [rows, columns] || taps > 1 {
            true => even(run, (most / (rows_each * columns_each) + 1).saturating_sub(taps)),
            false => 1,
        };
        Regions { run, runs, slices_each, tiles: [rows, columns], tiles_each, taps }
    }

    fn counts(&self) -> [usize; 3] {
        let [rows, columns] = [0, 1].map(|axis| self.tiles[axis].div_ceil(self.tiles_each[axis]));
        [self.run.div_ceil(self.slices_each), rows, columns]
    }

    pub fn count(&self) -> usize {
        self.runs * self.counts().iter().product::<usize>()
    }

    pub fn at(&self, i: usize) -> Region {
        let [slices, rows, columns] = self.counts();
        let (slice, area) = (i / columns / rows, [i / columns % rows, i % columns]);
        let (run, first) = (slice / slices * self.run, slice % slices * self.slices_each);
        let [rows, columns] = [0, 1].map(|axis| {
            let first = area[axis] * self.tiles_each[axis];
            first..(first + self.tiles_each[axis]).min(self.tiles[axis])
        });
        Region {
            slices: run + first..run + (first + self.slices_each).min(self.run),
            rows,
            columns,
            taps: self.taps,
        }
    }

    /// The largest region.
    pub fn largest(&self) -> Region {
        self.at(0)
    }
}

/// `all` divided by the least number of parts that are no larger than `most`, if that is not zero.
pub fn even(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most.max(1)).max(1)).max(1)
}

/// `rows` of slices of `each` rows as parts of single slices: the slice, its rows, and how many of
/// `rows` are before them.
pub fn bands(
    rows: Range<usize>,
    each: usize,
) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let mut at = rows.start;
    std::iter::from_fn(move || {
        (at < rows.end).then(|| {
            let slice = at / each;
            let end = rows.end.min((slice + 1) * each);
            let band = (slice, at - slice * each..end - slice * each, at - rows.start);
            at = end;
            band
        })
    })
}
