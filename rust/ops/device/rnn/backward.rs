//! Recurrent layers backwards.

use super::{
    FOLD, LayerPass, PROJECT_BACK, Recorded, Results, RnnOperands, STEP_BACK, TapeRecord, run,
};
use crate::args;
use crate::error::Result;
use crate::kernels::rnn::{Cell, Weights};
use crate::operator::{Grid, Launcher};
use crate::ops::device::reduce::Fold;
use crate::shape::Shape;
use std::ops::Range;

/// Gradients of the outputs, null where there are none, and where those of the inputs go, null
/// where they are not wanted.
pub struct Gradients {
    pub out: *mut u8,
    pub last_states: *mut u8,
    pub last_cells: *mut u8,
    pub x: *mut u8,
    pub weights: *mut u8,
    pub states: *mut u8,
    pub cells: *mut u8,
}

/// Runs backward with the values that a forward run has recorded; repeats that run if there are
/// none.
pub fn backward(
    launcher: &mut dyn Launcher,
    of: &RnnOperands<'_>,
    recorded: Option<&Recorded>,
    gradients: &Gradients,
) -> Result<()> {
    let fits = |r: &&Recorded| r.sizes == of.sizes() && r.dtype == of.dtype;
    let record = match recorded.filter(fits) {
        Some(recorded) => of.lay_out(recorded.memory.at()),
        None => {
            let memory = launcher.memory().take(of.lay_out(std::ptr::null_mut()).bytes)?;
            let record = of.lay_out(memory);
            let [out, states, cells] = [std::ptr::null_mut(); 3];
            run(launcher, of, &record, &Results { out, states, cells })?;
            record
        }
    };
    Backward::new(launcher, of, gradients)?.run(launcher, &record)
}

/// The arrays of a backward run.
struct Backward<'a> {
    of: &'a RnnOperands<'a>,
    lengths: *mut u8,
    /// Gradients of the states and cell states of every layer and direction, which begin as those
    /// of the last ones and end as those of the first.
    dh: *mut u8,
    dc: *mut u8,
    /// Of the gates, for the parts of the input and of the states, at all times.
    dg: *mut u8,
    drec: *mut u8,
    /// Of the projected values, at all times, and of the hidden values at one.
    projected: *mut u8,
    full: *mut u8,
    gradients: &'a Gradients,
}

impl<'a> Backward<'a> {
    fn new(
        launcher: &mut dyn Launcher,
        of: &'a RnnOperands<'a>,
        gradients: &'a Gradients,
    ) -> Result<Self> {
        let count = of.param.layers() * of.param.directions();
        let [states, cells] = of.state_sizes();
        let mut start = |wanted: *mut u8, last: *mut u8, n: usize| -> Result<*mut u8> {
            let bytes = of.bytes(count * n);
            let to = if wanted.is_null() { launcher.memory().take(bytes)? } else { wanted };
            match last.is_null() {
                true => launcher.clear(to, bytes)?,
                false => launcher.copy(to, last, bytes)?,
            }
            Ok(to)
        };
        let dh = start(gradients.states, gradients.last_states, states)?;
        let dc = match of.has_cell(Cell::Lstm) {
            true => start(gradients.cells, gradients.last_cells, cells)?,
            false => std::ptr::null_mut(),
        };
        let take = |so: bool, elements: usize| match so {
            true => launcher.memory().take(of.bytes(elements)),
            false => Ok(std::ptr::null_mut()),
        };
        let dg = take(true, of.rows() * of.width())?;
        let drec = if of.has_cell(Cell::Gru) { take(true, of.rows() * of.width())? } else { dg };
        let projected = take(of.is_projected(), of.rows() * of.param.state())?;
        let full = take(of.is_projected(), cells)?;
        let lengths = of.lengths(launcher)?;
        Ok(Backward { of, lengths, dh, dc, dg, drec, projected, full, gradients })
    }

    fn run(&self, launcher: &mut dyn Launcher, record: &TapeRecord) -> Result<()> {
        let (of, param) = (self.of, self.of.param);
        let (ranges, _) = param.ranges(of.first);
        let mut dout = self.gradients.out;
        for layer in (0..param.layers()).rev() {
            let n = of.rows() * param.input(layer, of.first);
            let dx = match layer {
                0 => self.gradients.x,
                _ => launcher.memory().take(of.bytes(n))?,
            };
            for place in of.places(layer) {
                let tape = &record.tapes[place.at];
                let pass = LayerPass { of, place: &place, tape, lengths: self.lengths };
                let x = of.input_of(record, layer);
                self.layer(launcher, &pass, &ranges[place.at], dout, [x, dx])?;
            }
            of.drop(launcher, layer, dx, n)?;
            dout = dx;
        }
        Ok(())
    }

    fn layer(
        &self,
        launcher: &mut dyn Launcher,
        pass: &LayerPass<'_>,
        ranges: &Weights<Range<usize>>,
        dout: *mut u8,
        [x, dx]: [*mut u8; 2],
    ) -> Result<()> {
        let of = self.of;
        let w = of.weights(of.weights, ranges);
        if of.batch > 0 {
            for t in of.times(pass.place).rev() {
                self.step(launcher, pass, &w, dout, t)?;
            }
        }
        let (rows, width) = (of.rows(), of.width());
        let input = of.param.input(pass.place.layer, of.first);
        if !dx.is_null() {
            let adds = pass.place.direction == 1;
            of.rows_by_columns(launcher, [rows, input, width], [self.dg, w.input, dx], adds)?;
        }
        if self.gradients.weights.is_null() {
            return Ok(());
        }
        self.weights(launcher, pass, &of.weights(self.gradients.weights, ranges), x)
    }

    /// The gradients of one step.
    fn step(
        &self,
        launcher: &mut dyn Launcher,
        pass: &LayerPass<'_>,
        w: &Weights<*mut u8>,
        dout: *mut u8,
        t: usize,
    ) -> Result<()> {
        let (of, tape) = (self.of, pass.tape);
        let (hid, st, batch, width) = (of.param.hidden(), of.param.state(), of.batch, of.width());
        let (before, after) = of.around(pass.place, t);
        let [states, cells] = of.state_sizes();
        let dh = of.at(self.dh, pass.place.at * states);
        let dc = of.at(self.dc, pass.place.at * cells);
        let (dout, out_width) = (pass.columns(dout, t), of.out_width() as i64);
        let mut from = std::ptr::null_mut();
        if of.is_projected() {
            let projected = pass.rows(self.projected, t, st);
            let (n, k, t) = (batch as i64, st as i64, t as i64);
            let mut args = args![n, k, dout, out_width, dh, projected, self.lengths, t];
            launcher.launch(PROJECT_BACK, Grid::over(batch * st), &mut args)?;
            let operands = [projected, w.projection, self.full];
            of.rows_by_columns(launcher, [batch, hid, st], operands, false)?;
            from = self.full;
        }
        let (clips, low, high) = of.limits();
        let drec = pass.rows(self.drec, t, width);
        let mut args = args![
            batch as i64,
            hid as i64,
            of.cell_number(),
            pass.rows(tape.gates, t, width),
            pass.rows(tape.inner, t, hid),
            pass.state(before),
            pass.cell(before),
            pass.cell(after),
            from,
            dout,
            out_width,
            dh,
            dc,
            pass.rows(self.dg, t, width),
            drec,
            self.lengths,
            t as i64,
            clips,
            low,
            high
        ];
        launcher.launch(STEP_BACK, Grid::over(batch * hid), &mut args)?;
        of.rows_by_columns(launcher, [batch, st, width], [drec, w.recurrent, dh], true)
    }

    /// The gradients of the parameters, over all times.
    fn weights(
        &self,
        launcher: &mut dyn Launcher,
        pass: &LayerPass<'_>,
        to: &Weights<*mut u8>,
        x: *mut u8,
    ) -> Result<()> {
        let of = self.of;
        let (rows, width) = (of.rows(), of.width());
        let (hid, st) = (of.param.hidden(), of.param.state());
        let input = of.param.input(pass.place.layer, of.first);
        of.columns_by_columns(launcher, [width, input, rows], [self.dg, x, to.input])?;
        let states = pass.state(of.around(pass.place, 0).0);
        of.columns_by_columns(launcher, [width, st, rows], [self.drec, states, to.recurrent])?;
        if of.is_projected() {
            let operands = [self.projected, pass.tape.full, to.projection];
            of.columns_by_columns(launcher, [st, hid, rows], operands)?;
        }
        let fold = Fold::over(&Shape::new(&[rows as i64, width as i64]), &[true, false])?;
        fold.issue(launcher, FOLD, self.dg, to.input_bias, 0)?;
        match self.drec == self.dg {
            true => launcher.copy(to.recurrent_bias, to.input_bias, of.bytes(width)),
            false => fold.issue(launcher, FOLD, self.drec, to.recurrent_bias, 0),
        }
    }
}
