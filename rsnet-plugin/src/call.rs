//! One call of a kernel.

use crate::abi::{self, Args};
use crate::operator::{Arg, State};
use crate::{Attrs, DType, Element, Result, index, register, said};
use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// What is wanted of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing; the output is scratch, and has no memory for kernels with [`abi::SKIPS_NULL`].
    Null,
    Write,
    /// As `Write`, into the memory of an input: see [`Call::in_place`].
    InPlace,
    /// The sum with what is there; kernels with [`abi::ACCUMULATES`] only.
    Add,
}

/// An input and an output that may be the same memory.
pub enum InPlace<'a, T> {
    /// The output, which holds the elements of the input.
    Same(&'a mut [T]),
    Apart(&'a [T], &'a mut [T]),
}

/// Bytes that were lent: from, to, and whether they may be written.
type Lent = (usize, usize, bool);

/// One call of a kernel. It lends its arrays so that no element can be read by one name while it is
/// written by another: what overlaps is refused.
pub struct Call<'a> {
    args: &'a Args,
    inputs: &'static [Arg],
    lent: RefCell<Vec<Lent>>,
}

/// A side, as errors name it.
fn name(side: i32) -> &'static str {
    if side == abi::INPUT { "input" } else { "output" }
}

/// What the extents of a tensor multiply to.
fn size(tensor: &abi::Tensor) -> usize {
    shape(tensor).iter().product::<i64>() as usize
}

fn shape(tensor: &abi::Tensor) -> &[i64] {
    match tensor.ndim {
        // SAFETY: rsnet passes `ndim` extents, which live as long as the tensor.
        1.. => unsafe { from_raw_parts(tensor.shape, tensor.ndim as usize) },
        _ => &[],
    }
}

impl<'a> Call<'a> {
    /// # Safety
    /// `args` are those of a call that lasts as long as `'a`, of an operator with these inputs, and
    /// there is one `Call` of them.
    pub(crate) unsafe fn new(args: &'a Args, inputs: &'static [Arg]) -> Self {
        Call { args, inputs, lent: RefCell::default() }
    }

    fn host(&self) -> &'a abi::Host {
        // SAFETY: rsnet's table lives as long as the process.
        unsafe { &*self.args.host }
    }

    pub fn attrs(&self) -> Attrs<'a> {
        // SAFETY: the promise of `new`.
        unsafe { Attrs::new(self.host(), self.args.ctx) }
    }

    /// The number that attribute `i` has.
    pub fn number(&self, i: usize) -> Result<f64> {
        self.attrs().number(i)
    }

    fn tensors(&self, side: i32) -> &'a [abi::Tensor] {
        let (all, n) = match side {
            abi::INPUT => (self.args.inputs, self.args.n_in),
            _ => (self.args.outputs, self.args.n_out),
        };
        // SAFETY: rsnet passes `n` tensors, which live as long as the call.
        if n > 0 { unsafe { from_raw_parts(all, n as usize) } } else { &[] }
    }

    fn tensor(&self, side: i32, i: usize) -> Result<&'a abi::Tensor> {
        let all = self.tensors(side);
        all.get(i).ok_or_else(|| format!("there is no {} {i}, only {}", name(side), all.len()))
    }

    pub fn n_inputs(&self) -> usize {
        self.tensors(abi::INPUT).len()
    }

    pub fn n_outputs(&self) -> usize {
        self.tensors(abi::OUTPUT).len()
    }

    /// How many arrays an input argument has: none if it is absent.
    pub fn count(&self, arg: &CStr) -> usize {
        // SAFETY: the promise of `new`.
        let n = unsafe { (self.host().count)(self.args.ctx, abi::INPUT, arg.as_ptr()) };
        usize::try_from(n).unwrap_or(0)
    }

    /// The number of array `i` of an input argument among all inputs.
    pub fn find(&self, arg: &CStr, i: usize) -> Option<usize> {
        // SAFETY: as above.
        let at = unsafe { (self.host().find)(self.args.ctx, abi::INPUT, arg.as_ptr(), index(i)) };
        usize::try_from(at).ok()
    }

    pub fn input_shape(&self, i: usize) -> Result<&'a [i64]> {
        self.tensor(abi::INPUT, i).map(shape)
    }

    pub fn input_dtype(&self, i: usize) -> Result<DType> {
        self.tensor(abi::INPUT, i).map(|t| t.dtype)
    }

    pub fn output_shape(&self, i: usize) -> Result<&'a [i64]> {
        self.tensor(abi::OUTPUT, i).map(shape)
    }

    pub fn output_dtype(&self, i: usize) -> Result<DType> {
        self.tensor(abi::OUTPUT, i).map(|t| t.dtype)
    }

    /// What is wanted of output `i`.
    pub fn request(&self, i: usize) -> Result<Request> {
        self.tensor(abi::OUTPUT, i)?;
        // SAFETY: there is a request for each output.
        Ok(match unsafe { *self.args.req.add(i) } {
            0 => Request::Null,
            2 => Request::InPlace,
            3 => Request::Add,
            _ => Request::Write,
        })
    }

    pub fn is_train(&self) -> bool {
        self.args.flags & abi::IS_TRAIN != 0
    }

    pub fn needs_grad(&self) -> bool {
        self.args.flags & abi::NEEDS_GRAD != 0
    }

    /// Where it runs: [`abi::CPU`] or [`abi::GPU`], and which of these.
    pub fn device(&self) -> (i32, i32) {
        (self.args.device.device_type, self.args.device.device_id)
    }

    /// The stream of a device, null on the CPU.
    pub fn stream(&self) -> *mut c_void {
        self.args.stream
    }

    /// The address of input `i`, for kernels of a device, whose memory the host cannot read.
    pub fn input_address(&self, i: usize) -> Result<*const c_void> {
        let t = self.tensor(abi::INPUT, i)?;
        Ok(t.data.wrapping_byte_add(t.byte_offset as usize))
    }

    /// The address of output `i`.
    pub fn output_address(&self, i: usize) -> Result<*mut c_void> {
        let t = self.tensor(abi::OUTPUT, i)?;
        Ok(t.data.wrapping_byte_add(t.byte_offset as usize))
    }

    /// Where elements of a tensor are, and how many; `None` if there are none.
    fn place<T: Element>(&self, side: i32, i: usize) -> Result<Option<(*mut T, usize)>> {
        let t = self.tensor(side, i)?;
        if self.args.device.device_type != abi::CPU {
            return Err("the memory is on a device, whose addresses input_address tells".into());
        }
        if t.dtype != T::DTYPE {
            let side = name(side);
            return Err(format!("{side} {i} has dtype {} and is read as {}", t.dtype, T::DTYPE));
        }
        let n = size(t);
        if n == 0 {
            return Ok(None);
        }
        if t.data.is_null() {
            return Err(format!("output {i} is not wanted, and has no memory"));
        }
        Ok(Some((t.data.wrapping_byte_add(t.byte_offset as usize).cast(), n)))
    }

    /// Notes that bytes are lent; refuses what overlaps others, of which one is written.
    fn lend<T>(&self, (at, n): (*mut T, usize), writes: bool, what: &str) -> Result {
        let (from, to) = (at as usize, at as usize + n * size_of::<T>());
        let mut lent = self.lent.borrow_mut();
        if lent.iter().any(|l| l.0 < to && from < l.1 && (writes || l.2)) {
            return Err(format!("{what} overlaps memory that the kernel has taken before"));
        }
        lent.push((from, to, writes));
        Ok(())
    }

    /// The elements of input `i`.
    pub fn input<T: Element>(&self, i: usize) -> Result<&'a [T]> {
        let Some(place) = self.place::<T>(abi::INPUT, i)? else { return Ok(&[]) };
        self.lend(place, false, &format!("input {i}"))?;
        // SAFETY: rsnet passes a block of `place.1` elements, and nothing writes to it.
        Ok(unsafe { from_raw_parts(place.0, place.1) })
    }

    /// The elements of output `i`, once in a call.
    pub fn output<T: Element>(&self, i: usize) -> Result<&'a mut [T]> {
        let Some(place) = self.place::<T>(abi::OUTPUT, i)? else { return Ok(&mut []) };
        self.lend(place, true, &format!("output {i}"))?;
        // SAFETY: rsnet passes a block of `place.1` elements, and nothing else refers to it.
        Ok(unsafe { from_raw_parts_mut(place.0, place.1) })
    }

    /// The elements of an auxiliary state, once in a call.
    pub fn aux<T: Element>(&self, arg: &CStr) -> Result<&'a mut [T]> {
        let is_aux = |a: &&Arg| a.name == arg && a.flags & abi::STATE != 0;
        let at = self.inputs.iter().find(is_aux).and_then(|_| self.find(arg, 0));
        let at = at.ok_or_else(|| format!("there is no auxiliary state {arg:?}"))?;
        let Some(place) = self.place::<T>(abi::INPUT, at)? else { return Ok(&mut []) };
        self.lend(place, true, "an auxiliary state")?;
        // SAFETY: as in `output`; rsnet lets kernels write to auxiliary states.
        Ok(unsafe { from_raw_parts_mut(place.0, place.1) })
    }

    /// An input and an output of a pair that the operator proposed, which may be the same memory.
    pub fn in_place<T: Element>(&self, input: usize, output: usize) -> Result<InPlace<'a, T>> {
        let from = self.place::<T>(abi::INPUT, input)?;
        if from.is_some() && from == self.place::<T>(abi::OUTPUT, output)? {
            return self.output(output).map(InPlace::Same);
        }
        Ok(InPlace::Apart(self.input(input)?, self.output(output)?))
    }

    /// The bytes that the kernel's `tmp_bytes` asked for, once in a call.
    pub fn tmp(&self) -> Result<&'a mut [MaybeUninit<u8>]> {
        let bytes = usize::try_from(self.args.tmp_bytes).map_err(|e| e.to_string())?;
        if bytes == 0 {
            return Ok(&mut []);
        }
        if self.args.device.device_type != abi::CPU {
            return Err("temporary space is on a device: temp_address takes more of it".into());
        }
        let place = (self.args.tmp.cast::<MaybeUninit<u8>>(), bytes);
        self.lend(place, true, "temporary space")?;
        // SAFETY: rsnet passes `place.1` bytes, to which nothing else refers.
        Ok(unsafe { from_raw_parts_mut(place.0, place.1) })
    }

    /// Temporary space until the call ends: its address, on the device of the call.
    pub fn temp_address(&self, bytes: usize) -> Result<*mut c_void> {
        // SAFETY: the promise of `new`.
        let at = unsafe { (self.host().temp)(self.args.ctx, bytes as u64) };
        if at.is_null() { Err(String::new()) } else { Ok(at) }
    }

    /// `n` elements of temporary space, all zero.
    pub fn temp<T: Element>(&self, n: usize) -> Result<&'a mut [T]> {
        if n == 0 {
            return Ok(&mut []);
        }
        if self.args.device.device_type != abi::CPU {
            return Err("the memory is on a device, whose addresses temp_address returns".into());
        }
        let bytes = n.checked_mul(size_of::<T>()).filter(|b| isize::try_from(*b).is_ok());
        let bytes = bytes.ok_or_else(|| format!("{n} elements of temporary space are too many"))?;
        let at = self.temp_address(bytes)?.cast::<T>();
        // SAFETY: rsnet passes `bytes` bytes, aligned to 64, to which nothing else refers.
        unsafe {
            at.write_bytes(0, n);
            Ok(from_raw_parts_mut(at, n))
        }
    }

    /// Random words of 64 bits: the numbers `first` and up of this call.
    pub fn random(&self, first: u64, words: &mut [u64]) -> Result {
        let n = words.len() as u64;
        // SAFETY: rsnet writes `n` words.
        said(unsafe { (self.host().random)(self.args.ctx, first, n, words.as_mut_ptr()) })
    }

    /// What `Operator::STATE` made for this node, once in a call.
    pub fn state<S: 'static>(&self) -> Result<&'a mut S> {
        let place = (self.args.state.cast::<State>(), 1);
        if place.0.is_null() {
            return Err("the operator has no state".into());
        }
        self.lend(place, true, "the state")?;
        // SAFETY: it is of this operator, and runs of one node never overlap.
        let state = unsafe { &mut *place.0 };
        state.downcast_mut().ok_or_else(|| "the state is of another type".into())
    }

    /// Calls `f` on parts of `0..n`, each of `grain` items or more, on the threads of the engine
    /// and this one. Returns the first failure.
    pub fn parallel_for<F>(&self, n: usize, grain: usize, f: F) -> Result
    where
        F: Fn(Range<usize>) -> Result + Sync,
    {
        let part = Part { f: &f, host: self.host(), ctx: self.args.ctx };
        let (n, grain) = (n as i64, i64::try_from(grain).unwrap_or(i64::MAX));
        let data = (&raw const part).cast_mut().cast();
        // SAFETY: `run_part` gets `part`, which outlives the call.
        said(unsafe {
            (self.host().parallel_for)(self.args.ctx, n, grain, Some(run_part::<F>), data)
        })
    }

    /// As [`Call::parallel_for`], with a part of `items` for each part: `f` gets the number of its
    /// first item, too.
    pub fn parallel_parts<T, F>(&self, items: &mut [T], grain: usize, f: F) -> Result
    where
        T: Send,
        F: Fn(usize, &mut [T]) -> Result + Sync,
    {
        let at = Shared(items.as_mut_ptr());
        self.parallel_for(items.len(), grain, |range| {
            // SAFETY: parts do not overlap, and lie in `items`, which is borrowed meanwhile.
            let part = unsafe { from_raw_parts_mut(at.get().add(range.start), range.len()) };
            f(range.start, part)
        })
    }
}

/// An address that parts of a loop share.
struct Shared<T>(*mut T);
// SAFETY: each part uses items of its own.
unsafe impl<T: Send> Sync for Shared<T> {}
impl<T> Shared<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

struct Part<'a, F> {
    f: &'a F,
    host: &'a abi::Host,
    ctx: *mut abi::Ctx,
}

/// # Safety
/// `data` points to a `Part<F>`.
unsafe extern "C-unwind" fn run_part<F>(data: *mut c_void, begin: i64, end: i64) -> abi::Status
where
    F: Fn(Range<usize>) -> Result + Sync,
{
    // SAFETY: the caller's promise; a `Sync` function may be called on any thread.
    let part = unsafe { &*data.cast::<Part<'_, F>>() };
    register::answer(part.host, part.ctx, abi::INTERNAL, || (part.f)(begin as usize..end as usize))
}
