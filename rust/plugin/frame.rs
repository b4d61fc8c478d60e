//! What an `rsnet_ctx` points to: the circumstances of one callback.
//!
//! A frame lives on the stack of the thread that makes the callback. Whatever the callback changes
//! is behind a lock, because a library may use the context on threads of its own while the callback
//! waits for them.

use super::abi;
use super::decl::OpDecl;
use super::dtypes::{dtype_code, dtype_from, dtype_text};
use super::library::Library;
use super::parsed::Parsed;
use super::rule::Rule;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::scratch::Scratch;
use crate::lock::{Guard, Lock};
use crate::operator::{Call, Dep, DeviceMemory, InplacePair, RandomKey};
use crate::shape::{Numbers, Shape};
use std::ffi::c_void;
use std::sync::Arc;

/// The most axes of a shape.
pub const MOST_AXES: usize = 32;

/// The extents of a shape of which nothing is known, for libraries that look at them nevertheless.
static UNKNOWN_EXTENTS: [i64; MOST_AXES] = [-1; MOST_AXES];

/// The question that a callback answers: it has the functions of the host for this answer only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// No answer but its status.
    Nothing,
    /// Shapes and dtypes.
    Inference,
    Names,
    InplacePairs,
    Resources,
    Signatures,
    /// What a backward operator reads.
    Deps,
}

impl Asks {
    /// The callbacks that are asked for it.
    fn callbacks(self) -> &'static str {
        match self {
            Asks::Nothing => "none",
            Asks::Inference => "infer, infer_shape, infer_type",
            Asks::Names => "names",
            Asks::InplacePairs => "inplace",
            Asks::Resources => "resources",
            Asks::Signatures => "sbp",
            Asks::Deps => "deps",
        }
    }
}

/// One callback.
pub struct Frame<'a> {
    pub op: &'a Arc<OpDecl>,
    /// The library whose function is called: that of the operator, or of its kernel or gradient.
    pub library: &'a Library,
    pub parsed: &'a Parsed,
    asks: Asks,
    pub random: RandomKey,
    /// The device of the arrays.
    pub device: Context,
    /// Memory of that device, unless it is the CPU.
    pub memory: Option<&'a dyn DeviceMemory>,
    scene: Lock<Scene>,
}

/// The state that a callback can change. Small, since every call of a kernel makes one.
#[derive(Default)]
pub struct Scene {
    failure: Option<String>,
    /// The failure is that there is not enough memory.
    lacks_memory: bool,
    pub scratch: Vec<Scratch>,
    said: Option<Box<Said>>,
}

/// Knowledge of arrays, and an operator's answers about itself: few calls of kernels need either.
#[derive(Default)]
pub struct Said {
    pub tensors: [Vec<Slot>; 2],
    pub names: [Vec<(String, u32)>; 2],
    pub pairs: Vec<InplacePair>,
    pub temp_bytes: u64,
    pub random: bool,
    pub signatures: Vec<String>,
    pub deps: Vec<Dep>,
    pub rule: Option<Rule>,
}

impl Said {
    /// What callbacks may ask of arrays on `device`.
    pub fn of_arrays(
        device: Context,
        inputs: impl IntoIterator<Item = Slot>,
        outputs: impl IntoIterator<Item = Slot>,
    ) -> Box<Said> {
        let on_device = |mut slot: Slot| {
            slot.tensor.device = device_of(device);
            slot
        };
        let tensors = [
            inputs.into_iter().map(on_device).collect(),
            outputs.into_iter().map(on_device).collect(),
        ];
        Box::new(Said { tensors, ..Said::default() })
    }
}

impl Scene {
    pub fn said(&mut self) -> &mut Said {
        self.said.get_or_insert_default()
    }
}

// SAFETY: pointers of slots point into the slots' own memory or into that of views, which outlive
// the frame.
unsafe impl Send for Scene {}

/// Knowledge of one array.
pub struct Slot {
    pub tensor: abi::Tensor,
    pub shape: Shape,
    pub dtype: Option<DType>,
    /// The extents that `tensor` points to, and those that it pointed to before.
    extents: Vec<Box<[i64]>>,
}

/// A device as libraries see it.
pub fn device_of(device: Context) -> abi::Device {
    let device_type = if device.is_host() { abi::CPU } else { abi::GPU };
    abi::Device { device_type, device_id: device.device_id }
}

impl Slot {
    /// An array on the CPU.
    pub fn new(shape: &Shape, dtype: Option<DType>) -> Slot {
        let tensor = abi::Tensor {
            data: std::ptr::null_mut(),
            device: device_of(Context::default()),
            ndim: -1,
            dtype: abi::DTypeCode::default(),
            shape: UNKNOWN_EXTENTS.as_ptr(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        let mut slot = Slot { tensor, shape: Shape::unknown(), dtype: None, extents: Vec::new() };
        slot.put_shape(shape.clone());
        slot.put_dtype(dtype);
        slot
    }

    fn put_shape(&mut self, shape: Shape) {
        if shape.rank_known() {
            let extents: Box<[i64]> = shape.dims().into();
            self.tensor.ndim = extents.len() as i32;
            self.tensor.shape = extents.as_ptr();
            self.extents.push(extents);
        }
        self.shape = shape;
    }

    fn put_dtype(&mut self, dtype: Option<DType>) {
        self.tensor.dtype = dtype.map_or(abi::DTypeCode::default(), dtype_code);
        self.dtype = dtype;
    }
}

impl<'a> Frame<'a> {
    pub fn new(parsed: &'a Parsed) -> Self {
        Frame {
            op: &parsed.op,
            library: &parsed.op.library,
            parsed,
            asks: Asks::Nothing,
            random: RandomKey::NONE,
            device: Context::default(),
            memory: None,
            scene: Lock::default(),
        }
    }

    /// A frame whose callback may ask for arrays, which are on `device`.
    pub fn with_arrays(
        parsed: &'a Parsed,
        device: Context,
        inputs: impl IntoIterator<Item = Slot>,
        outputs: impl IntoIterator<Item = Slot>,
    ) -> Self {
        let mut frame = Frame { device, ..Frame::new(parsed) };
        frame.scene.get_mut().said = Some(Said::of_arrays(device, inputs, outputs));
        frame
    }

    /// The frame of a call of a kernel of `library`. It is made in its place: every call makes one,
    /// and moving it would cost as much as the rest.
    #[inline(always)]
    pub fn of_call(
        parsed: &'a Parsed,
        library: &'a Library,
        call: &Call<'a>,
        said: Option<Box<Said>>,
    ) -> Self {
        Frame {
            op: &parsed.op,
            library,
            parsed,
            asks: Asks::Nothing,
            random: call.ctx.random,
            device: call.ctx.device,
            memory: call.memory,
            scene: Lock::new(Scene {
                failure: None,
                lacks_memory: false,
                scratch: Vec::new(),
                said,
            }),
        }
    }

    /// A frame whose callback is a function of another library than the operator's.
    pub fn of(self, library: &'a Library) -> Self {
        Frame { library, ..self }
    }

    /// A frame whose callback is asked for this.
    pub fn asking(self, asks: Asks) -> Self {
        Frame { asks, ..self }
    }

    /// Refuses `function`, which answers `asks`, in a callback that is asked for something else.
    pub fn check_asks(&self, asks: Asks, function: &str) -> Result<()> {
        if self.asks == asks {
            return Ok(());
        }
        Err(Error::value(format!(
            "invalid callback for {function}: expected one of: {}",
            asks.callbacks()
        )))
    }

    /// The frame as libraries see it.
    pub fn as_ctx(&self) -> *mut abi::Ctx {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn scene(&self) -> Guard<'_, Scene> {
        self.scene.lock()
    }

    /// The state after the callback.
    pub fn into_said(mut self) -> Said {
        self.scene.get_mut().said.take().map(|said| *said).unwrap_or_default()
    }

    /// Notes why the callback fails.
    pub fn fail(&self, text: impl Into<String>) {
        let mut scene = self.scene();
        scene.failure = Some(text.into());
        scene.lacks_memory = false;
    }

    /// As [`Frame::fail`], for a function of the host that returns a status.
    pub fn refuse(&self, error: &Error) -> abi::Status {
        self.fail(error.message());
        abi::INVALID
    }

    /// Did it fail for want of memory?
    pub fn lacks_memory(&self) -> bool {
        self.scene().lacks_memory
    }

    /// Why the callback failed, if it said so.
    pub fn failure(&self) -> Option<String> {
        self.scene().failure.take()
    }

    /// Name of an array for messages.
    fn array(&self, side: i32, i: usize) -> String {
        let kind = if side == abi::INPUT { "input" } else { "output" };
        let name = self.parsed.names[side as usize].get(i).map(|n| n.0.as_str());
        name.map_or_else(|| format!("{kind} {i}"), |name| format!("{kind} '{name}'"))
    }

    /// The index of an array that is there.
    pub fn index(&self, side: i32, i: i32) -> Result<(usize, usize)> {
        let n = match side {
            abi::INPUT | abi::OUTPUT => self.scene().said().tensors[side as usize].len(),
            _ => {
                return Err(Error::index(format!("invalid side {side}: expected 0 or 1")));
            }
        };
        match usize::try_from(i) {
            Ok(i) if i < n => Ok((side as usize, i)),
            _ => {
                let kind = if side == abi::INPUT { "inputs" } else { "outputs" };
                Err(Error::index(format!(
                    "invalid number {i} of an array: expected 0 to {} ({n} {kind} are known to \
                     this function)",
                    n as i64 - 1
                )))
            }
        }
    }

    /// Learns the shape of an array.
    ///
    /// # Safety
    /// `dims` points to `ndim` extents.
    pub unsafe fn set_shape(&self, side: i32, i: i32, ndim: i32, dims: *const i64) -> Result<()> {
        self.check_asks(Asks::Inference, "set_shape")?;
        let (side_at, at) = self.index(side, i)?;
        if ndim == -1 {
            return Ok(());
        }
        let axes = usize::try_from(ndim).ok().filter(|n| *n <= MOST_AXES);
        let axes = axes.filter(|n| *n == 0 || !dims.is_null()).ok_or_else(|| {
            Error::value(format!(
                "invalid shape of {}: {ndim} axes, expected 0 to {MOST_AXES} and their extents",
                self.array(side, at)
            ))
        })?;
        // SAFETY: the caller's promise.
        let dims = if axes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(dims, axes) } };
        if let Some(wrong) = dims.iter().find(|d| **d < -1) {
            return Err(Error::value(format!(
                "invalid shape {} of {}: extent {wrong}, expected 0 or more, or -1 for unknown",
                Numbers(dims),
                self.array(side, at)
            )));
        }
        let shape = Shape::new(dims);
        if shape.is_known() {
            shape.checked_size()?;
        }
        let mut scene = self.scene();
        let slot = &mut scene.said().tensors[side_at][at];
        let mut merged = slot.shape.clone();
        if merged.merge(&shape).is_err() {
            let known = slot.shape.clone();
            drop(scene);
            return Err(Error::value(format!(
                "invalid shape {known} of {}: expected {shape}",
                self.array(side, at)
            )));
        }
        slot.put_shape(merged);
        Ok(())
    }

    /// Learns the dtype of an array.
    pub fn set_dtype(&self, side: i32, i: i32, code: abi::DTypeCode) -> Result<()> {
        self.check_asks(Asks::Inference, "set_dtype")?;
        let (side_at, at) = self.index(side, i)?;
        if code.bits == 0 {
            return Ok(());
        }
        let dtype = dtype_from(code).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
            Error::type_(format!(
                "invalid dtype {} of {}: expected one of: {}",
                dtype_text(code),
                self.array(side, at),
                names.join(", ")
            ))
        })?;
        let mut scene = self.scene();
        let slot = &mut scene.said().tensors[side_at][at];
        match slot.dtype {
            Some(known) if known != dtype => {
                drop(scene);
                Err(Error::type_(format!(
                    "invalid dtype {known} of {}: expected {dtype}",
                    self.array(side, at)
                )))
            }
            _ => {
                slot.put_dtype(Some(dtype));
                Ok(())
            }
        }
    }

    /// Scratch memory for the rest of the callback: on the device of a kernel, which has it until
    /// its work there is done.
    pub fn temp(&self, bytes: u64) -> Option<*mut c_void> {
        let found = match (self.device.is_host(), self.memory) {
            (true, _) => self.host_temp(bytes),
            (false, Some(memory)) => match usize::try_from(bytes) {
                Ok(bytes) => memory.take(bytes).map(<*mut u8>::cast),
                Err(_) => Err(Error::new(ErrorKind::Memory, "")),
            },
            (false, None) => {
                self.fail(format!("there is no temporary space of {}", self.device));
                return None;
            }
        };
        match found {
            Ok(at) => Some(at),
            Err(error) => {
                let lacks_memory = error.kind() == ErrorKind::Memory;
                self.fail(match lacks_memory {
                    true => format!("cannot get {bytes} bytes of temporary space"),
                    false => error.message().to_owned(),
                });
                self.scene().lacks_memory = lacks_memory;
                None
            }
        }
    }

    fn host_temp(&self, bytes: u64) -> Result<*mut c_void> {
        let taken = usize::try_from(bytes).ok().and_then(Scratch::take);
        let mut scratch = taken.ok_or_else(|| Error::new(ErrorKind::Memory, ""))?;
        let at = scratch.as_mut_ptr().cast();
        self.scene().scratch.push(scratch);
        Ok(at)
    }
}
