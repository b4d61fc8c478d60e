//! The layouts of `include/rsnet/plugin.h` in Rust; what they mean is documented there.
//!
//! Callbacks are `extern "C-unwind"`: a C++ exception may pass the frames between a callback and
//! the library's own `rsnet_plugin_guard`, which catches it.

use std::ffi::{c_char, c_void};

pub const ABI: u32 = 1 << 16;

pub type Status = i32;
pub const OK: Status = 0;
pub const INVALID: Status = 1;
pub const UNSUPPORTED: Status = 2;
pub const INTERNAL: Status = 3;
pub const UNKNOWN: Status = 4;

pub const CPU: i32 = 1;
pub const GPU: i32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub device_type: i32,
    pub device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DTypeCode {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

pub const INT: u8 = 0;
pub const UINT: u8 = 1;
pub const FLOAT: u8 = 2;
pub const BOOLEAN: u8 = 6;

impl DTypeCode {
    /// No dtype: it is not known.
    pub const UNKNOWN: DTypeCode = DTypeCode { code: 0, bits: 0, lanes: 0 };
    pub const F16: DTypeCode = DTypeCode::of(FLOAT, 16);
    pub const F32: DTypeCode = DTypeCode::of(FLOAT, 32);
    pub const F64: DTypeCode = DTypeCode::of(FLOAT, 64);
    pub const U8: DTypeCode = DTypeCode::of(UINT, 8);
    pub const I8: DTypeCode = DTypeCode::of(INT, 8);
    pub const I32: DTypeCode = DTypeCode::of(INT, 32);
    pub const I64: DTypeCode = DTypeCode::of(INT, 64);
    pub const BOOL: DTypeCode = DTypeCode::of(BOOLEAN, 8);

    const fn of(code: u8, bits: u8) -> DTypeCode {
        DTypeCode { code, bits, lanes: 1 }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DTypeCode,
    pub shape: *const i64,
    pub strides: *const i64,
    pub byte_offset: u64,
}

pub mod kind {
    pub const NONE: i32 = 0;
    pub const I32: i32 = 1;
    pub const I64: i32 = 2;
    pub const BOOL: i32 = 3;
    pub const F32: i32 = 4;
    pub const F64: i32 = 5;
    pub const STR: i32 = 6;
    pub const SHAPE: i32 = 7;
    pub const DTYPE: i32 = 8;
    pub const LIST_I32: i32 = 9;
    pub const LIST_I64: i32 = 10;
    pub const LIST_F32: i32 = 11;
    pub const LIST_DTYPE: i32 = 12;
    pub const LIST_SHAPE: i32 = 13;
    pub const LIST_STR: i32 = 14;
    pub const U32: i32 = 15;
    pub const U64: i32 = 16;
    pub const ENUM: i32 = 17;
    pub const LIST_F64: i32 = 18;
    pub const LIST_MAYBE_I64: i32 = 19;

    pub fn is_integer(kind: i32) -> bool {
        [I32, I64, U32, U64].contains(&kind)
    }
}

/// An item None of a `LIST_MAYBE_I64`.
pub const NO_NUMBER: i64 = i64::MIN;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extents {
    pub n: i32,
    pub dims: *const i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Payload {
    pub i: i64,
    pub u: u64,
    pub f: f64,
    pub s: *const c_char,
    pub t: DTypeCode,
    pub is: *const i64,
    pub fs: *const f64,
    pub ts: *const DTypeCode,
    pub es: *const Extents,
    pub ss: *const *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub kind: i32,
    pub n: i32,
    pub v: Payload,
}

pub const MAY_BE_NONE: u32 = 1;
pub const HAS_LOW: u32 = 2;
pub const HAS_HIGH: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attr {
    pub struct_size: u32,
    pub kind: i32,
    pub name: *const c_char,
    pub doc: *const c_char,
    pub dflt: *const c_char,
    pub choices: *const *const c_char,
    pub n_choices: i32,
    pub flags: u32,
    pub low: f64,
    pub high: f64,
}

pub const OPTIONAL: u32 = 1;
pub const AT_LEAST: u32 = 2;
pub const STATE: u32 = 4;
pub const HIDDEN: u32 = 8;
pub const IGNORED: u32 = 16;
pub const NO_GRAD: u32 = 32;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Arg {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub doc: *const c_char,
    pub count: i32,
}

/// A type whose layout a plug-in never sees.
pub enum Ctx {}
pub enum Registry {}

pub type CallFn = Option<unsafe extern "C-unwind" fn(*const Host, *mut Ctx, *mut c_void) -> Status>;
pub type MakeFn = Option<
    unsafe extern "C-unwind" fn(*const Host, *mut Ctx, *mut c_void, *mut *mut c_void) -> Status,
>;
pub type FreeFn = Option<unsafe extern "C-unwind" fn(*mut c_void)>;
pub type ComputeFn = Option<unsafe extern "C-unwind" fn(*const Args) -> Status>;
pub type RangeFn = Option<unsafe extern "C-unwind" fn(*mut c_void, i64, i64) -> Status>;

pub const ELEMENTWISE: u32 = 1;
pub const BACKWARD: u32 = 2;
pub const NOT_DETERMINISTIC: u32 = 4;
pub const RANDOM: u32 = 8;
pub const LONG: u32 = 16;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Op {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub doc: *const c_char,
    pub aliases: *const *const c_char,
    pub n_aliases: i32,
    pub n_inputs: i32,
    pub n_outputs: i32,
    pub n_attrs: i32,
    pub inputs: *const Arg,
    pub outputs: *const Arg,
    pub attrs: *const Attr,
    pub count_attr: *const c_char,
    pub user: *mut c_void,
    pub infer: CallFn,
    pub infer_shape: CallFn,
    pub infer_type: CallFn,
    pub check: CallFn,
    pub names: CallFn,
    pub inplace: CallFn,
    pub resources: CallFn,
    pub sbp: CallFn,
    pub parse: MakeFn,
    pub free_parsed: FreeFn,
    pub create_state: MakeFn,
    pub destroy_state: FreeFn,
}

pub mod matching {
    pub const TRUE: i32 = 1;
    pub const DEVICE: i32 = 2;
    pub const DTYPE: i32 = 3;
    pub const NDIM: i32 = 4;
    pub const ATTR: i32 = 5;
    pub const AND: i32 = 6;
    pub const OR: i32 = 7;
    pub const NOT: i32 = 8;
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Match {
    pub op: i32,
    pub compare: i32,
    pub name: *const c_char,
    pub index: i32,
    pub dtype: DTypeCode,
    pub number: i64,
    pub text: *const c_char,
}

pub const IS_TRAIN: u32 = 1;
pub const NEEDS_GRAD: u32 = 2;

#[repr(C)]
pub struct Args {
    pub struct_size: u32,
    pub flags: u32,
    pub n_in: i32,
    pub n_out: i32,
    pub n_attrs: i32,
    pub device: Device,
    pub inputs: *const Tensor,
    pub outputs: *const Tensor,
    pub req: *const u8,
    pub attrs: *const Value,
    pub tmp: *mut c_void,
    pub tmp_bytes: u64,
    pub stream: *mut c_void,
    pub parsed: *mut c_void,
    pub state: *mut c_void,
    pub kernel_state: *mut c_void,
    pub user: *mut c_void,
    pub host: *const Host,
    pub ctx: *mut Ctx,
}

pub const ALWAYS_COMPUTE: u32 = 1;
pub const SKIPS_NULL: u32 = 2;
pub const ACCUMULATES: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Kernel {
    pub struct_size: u32,
    pub flags: u32,
    pub op: *const c_char,
    pub name: *const c_char,
    pub program: *const Match,
    pub n_match: i32,
    pub priority: i32,
    pub user: *mut c_void,
    pub compute: ComputeFn,
    pub tmp_bytes: MakeFn,
    pub inplace: CallFn,
    pub create_state: MakeFn,
    pub destroy_state: FreeFn,
}

pub const GRAD_RULE: i32 = 0;
pub const GRAD_BACKWARD: i32 = 1;
pub const GRAD_ZERO: i32 = 2;

pub const OUT_GRAD: i32 = 0;
pub const IN_DATA: i32 = 1;
pub const OUT_DATA: i32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Grad {
    pub struct_size: u32,
    pub kind: i32,
    pub op: *const c_char,
    pub backward: *const c_char,
    pub deps: CallFn,
    pub rule: CallFn,
    pub user: *mut c_void,
}

pub const INPUT: i32 = 0;
pub const OUTPUT: i32 = 1;

type Text = *const c_char;

#[repr(C)]
pub struct Host {
    pub struct_size: u32,
    pub abi: u32,
    pub register_op: unsafe extern "C" fn(*mut Registry, *const Op) -> Status,
    pub register_kernel: unsafe extern "C" fn(*mut Registry, *const Kernel) -> Status,
    pub register_grad: unsafe extern "C" fn(*mut Registry, *const Grad) -> Status,
    pub refuse: unsafe extern "C" fn(*mut Registry, Text),
    pub fail: unsafe extern "C" fn(*mut Ctx, Text),
    pub log: unsafe extern "C" fn(*mut Ctx, Text),
    pub attr: unsafe extern "C" fn(*mut Ctx, i32) -> *const Value,
    pub attr_by_name: unsafe extern "C" fn(*mut Ctx, Text) -> *const Value,
    pub parsed: unsafe extern "C" fn(*mut Ctx) -> *mut c_void,
    pub n_arrays: unsafe extern "C" fn(*mut Ctx, i32) -> i32,
    pub count: unsafe extern "C" fn(*mut Ctx, i32, Text) -> i32,
    pub find: unsafe extern "C" fn(*mut Ctx, i32, Text, i32) -> i32,
    pub tensor: unsafe extern "C" fn(*mut Ctx, i32, i32) -> *const Tensor,
    pub set_shape: unsafe extern "C" fn(*mut Ctx, i32, i32, i32, *const i64) -> Status,
    pub set_dtype: unsafe extern "C" fn(*mut Ctx, i32, i32, DTypeCode) -> Status,
    pub add_name: unsafe extern "C" fn(*mut Ctx, i32, Text, u32) -> Status,
    pub add_inplace: unsafe extern "C" fn(*mut Ctx, i32, i32, i32) -> Status,
    pub add_temp: unsafe extern "C" fn(*mut Ctx, u64) -> Status,
    pub add_random: unsafe extern "C" fn(*mut Ctx) -> Status,
    pub add_sbp: unsafe extern "C" fn(*mut Ctx, Text) -> Status,
    pub temp: unsafe extern "C" fn(*mut Ctx, u64) -> *mut c_void,
    pub random: unsafe extern "C" fn(*mut Ctx, u64, u64, *mut u64) -> Status,
    pub parallel_for: unsafe extern "C" fn(*mut Ctx, i64, i64, RangeFn, *mut c_void) -> Status,
    pub node_name: unsafe extern "C" fn(*mut Ctx) -> *const c_char,
    pub wants_grad: unsafe extern "C" fn(*mut Ctx, i32) -> i32,
    pub has_out_grad: unsafe extern "C" fn(*mut Ctx, i32) -> i32,
    pub entry: unsafe extern "C" fn(*mut Ctx, i32, i32) -> u64,
    pub node: unsafe extern "C" fn(*mut Ctx, Text, Text) -> u64,
    pub node_input: unsafe extern "C" fn(*mut Ctx, u64, Text, u64) -> Status,
    pub node_attr: unsafe extern "C" fn(*mut Ctx, u64, Text, Text) -> Status,
    pub node_output: unsafe extern "C" fn(*mut Ctx, u64, Text, i32) -> u64,
    pub bind_grad: unsafe extern "C" fn(*mut Ctx, i32, u64) -> Status,
    pub add_dep: unsafe extern "C" fn(*mut Ctx, i32, i32) -> Status,
}

/// `rsnet_plugin_guard` of a C++ library.
pub type GuardFn = unsafe extern "C-unwind" fn(
    unsafe extern "C-unwind" fn(*mut c_void) -> Status,
    *mut c_void,
    unsafe extern "C" fn(*mut c_void, *const c_char),
) -> Status;

/// `rsnet_plugin_register`.
pub type RegisterFn = unsafe extern "C-unwind" fn(*const Host, *mut Registry) -> Status;

/// A struct that begins with its size, and for which all bytes 0 are a value.
///
/// # Safety
/// That is so.
pub unsafe trait Sized32: Copy {}
// SAFETY: numbers, nullable pointers and optional functions after a size.
unsafe impl Sized32 for Attr {}
// SAFETY: as above.
unsafe impl Sized32 for Arg {}
// SAFETY: as above.
unsafe impl Sized32 for Op {}
// SAFETY: as above.
unsafe impl Sized32 for Kernel {}
// SAFETY: as above.
unsafe impl Sized32 for Grad {}

/// The largest size of a struct that is believed.
const MOST_BYTES: usize = 1 << 16;

/// A copy of a struct by its own size, with 0 for the fields that it does not have; the size comes
/// along. `None` if the size cannot be right.
///
/// # Safety
/// `from` is null or points to as many bytes as its first field says.
pub unsafe fn read<T: Sized32>(from: *const T) -> Option<(T, usize)> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    if !(8..=MOST_BYTES).contains(&size) {
        return None;
    }
    let mut copy = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have this many bytes; zeroed bytes are a `T`.
    unsafe {
        let bytes = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), bytes);
        Some((copy.assume_init(), size))
    }
}

/// A text of a library; `None` for a null pointer. What is not UTF-8 is replaced.
///
/// # Safety
/// `text` is null or ends with 0.
pub unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null())
        .then(|| unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_of_c() {
        assert_eq!((size_of::<Tensor>(), size_of::<Value>(), size_of::<Attr>()), (48, 16, 64));
        assert_eq!((size_of::<Arg>(), size_of::<Op>(), size_of::<Match>()), (32, 184, 40));
        assert_eq!((size_of::<Args>(), size_of::<Kernel>(), size_of::<Grad>()), (136, 88, 48));
        assert_eq!(size_of::<Host>(), 8 + 33 * 8);
    }

    #[test]
    fn shorter_structs_are_completed_and_damaged_ones_refused() {
        let whole =
            Arg { struct_size: 16, flags: 3, name: c"x".as_ptr(), doc: c"y".as_ptr(), count: 5 };
        // SAFETY: the struct has more bytes than it says.
        let (read_back, size) = unsafe { read(&whole) }.unwrap();
        assert_eq!((size, read_back.count), (16, 0));
        assert!(read_back.doc.is_null() && !read_back.name.is_null());
        for size in [0, 7, u32::MAX] {
            let damaged = Arg { struct_size: size, ..whole };
            // SAFETY: refused before more is read.
            assert!(unsafe { read(&damaged) }.is_none());
        }
    }
}
