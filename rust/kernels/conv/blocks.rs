//! Blocks of cells of a [`Grid`](super::Grid), which tasks calculate.

use std::ops::Range;

/// Some rows of cells, of each of which only some columns count.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

impl Block {
    /// Elements from the first cell to the last, where a row has `width` cells.
    pub fn span(&self, width: usize) -> usize {
        self.rows.len().saturating_sub(1) * width + self.columns.len()
    }
}

/// Rows of cells cut into blocks: of several rows, or of parts of a row where rows are long.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    rows: usize,
    columns: usize,
    /// Rows of a block.
    rows_each: usize,
    /// Columns of a block.
    columns_each: usize,
}

impl Blocks {
    /// Blocks of `rows_each` whole rows.
    pub fn of_rows([rows, columns]: [usize; 2], rows_each: usize) -> Self {
        Blocks { rows, columns, rows_each, columns_each: columns.max(1) }
    }

    /// Blocks of about equally many cells, `most` or somewhat more; parts of rows are multiples of
    /// `grain`.
    pub fn of_cells([rows, columns]: [usize; 2], most: usize, grain: usize) -> Self {
        if columns > most {
            let parts = columns.div_ceil(most);
            let columns_each = columns.div_ceil(parts).next_multiple_of(grain);
            return Blocks { rows, columns, rows_each: 1, columns_each };
        }
        let fitting = (most / columns.max(1)).max(1);
        let rows_each = rows.div_ceil(rows.div_ceil(fitting).max(1)).max(1);
        Blocks::of_rows([rows, columns], rows_each)
    }

    fn parts(&self) -> usize {
        self.columns.div_ceil(self.columns_each)
    }

    pub fn count(&self) -> usize {
        self.rows.div_ceil(self.rows_each) * self.parts()
    }

    pub fn at(&self, i: usize) -> Block {
        let (row, part) = (i / self.parts() * self.rows_each, i % self.parts() * self.columns_each);
        Block {
            rows: row..(row + self.rows_each).min(self.rows),
            columns: part..(part + self.columns_each).min(self.columns),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_cell_is_in_one_block(
            rows in 1usize..40, columns in 1usize..40, most in 1usize..60, grain in 1usize..9,
        ) {
            let blocks = Blocks::of_cells([rows, columns], most, grain);
            let mut seen = vec![0; rows * columns];
            for block in (0..blocks.count()).map(|i| blocks.at(i)) {
                prop_assert!(!block.rows.is_empty() && !block.columns.is_empty());
                prop_assert!(block.span(columns) < most + columns.min(grain).max(1));
                for row in block.rows {
                    block.columns.clone().for_each(|column| seen[row * columns + column] += 1);
                }
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }
    }
}
