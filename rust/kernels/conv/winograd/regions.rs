//! Which tiles are processed together.

use super::Geometry;
use std::ops::Range;

/// Some rows of tiles of some output slices. With several taps on the depth axis, these are slices
/// of one image, and each tap after the first reads one more input slice.
///
/// Tiles are numbered slice by slice, so from one tap to the next they are the same number on.
#[derive(Clone, Debug)]
pub struct Region {
    pub slices: Range<usize>,
    pub rows: Range<usize>,
    /// Tiles in a row.
    across: usize,
    /// Taps on the depth axis.
    pub taps: usize,
}

impl Region {
    /// Tiles of a slice.
    pub fn tiles_each(&self) -> usize {
        self.rows.len() * self.across
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
    rows: usize,
    rows_each: usize,
    across: usize,
    taps: usize,
}

impl Regions {
    /// Regions that read about `most` tiles; at least one row of one output slice.
    pub fn new(geometry: &Geometry, most: usize) -> Self {
        let (rows, across, taps) =
            (geometry.tile_rows(), geometry.tile_columns(), geometry.depth.kernel);
        let (run, runs) = match taps {
            1 => (geometry.slices(), 1),
            _ => (geometry.depth.output, geometry.batch),
        };
        // Of several taps, regions of few rows and several slices transform fewer tiles twice.
        let inputs = if taps == 1 { 1 } else { run.min(taps + 1) + taps - 1 };
        let rows_each = even(rows, most / (inputs * across));
        let slices_each = match rows_each == rows || taps > 1 {
            true => even(run, (most / (rows_each * across) + 1).saturating_sub(taps)),
            false => 1,
        };
        Regions { run, runs, slices_each, rows, rows_each, across, taps }
    }

    fn counts(&self) -> [usize; 2] {
        [self.run.div_ceil(self.slices_each), self.rows.div_ceil(self.rows_each)]
    }

    pub fn count(&self) -> usize {
        let [slices, rows] = self.counts();
        self.runs * slices * rows
    }

    pub fn at(&self, i: usize) -> Region {
        let [slices, rows] = self.counts();
        let (run, first) = (i / rows / slices * self.run, i / rows % slices * self.slices_each);
        let row = i % rows * self.rows_each;
        Region {
            slices: run + first..run + (first + self.slices_each).min(self.run),
            rows: row..(row + self.rows_each).min(self.rows),
            across: self.across,
            taps: self.taps,
        }
    }

    /// The largest region.
    pub fn largest(&self) -> Region {
        self.at(0)
    }
}

/// `all` divided by the least number of parts that are no larger than `most`, if that is not zero.
fn even(all: usize, most: usize) -> usize {
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
