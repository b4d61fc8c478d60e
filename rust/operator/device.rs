//! Kernels for CUDA devices: which functions of CUDA source a call needs, and how it launches them.
//!
//! A kernel of the host is a function; one for a device is a function too, but what it does is to
//! launch others, whose source is text (`python/rsnet/cuda/kernels/`) and which are compiled when
//! an operator is first called on elements of some dtypes. So a [`DeviceKernel`] says first which
//! they are. The executor obtains them while it prepares the call, where waiting for a compiler
//! and for the interpreter is allowed, and the launches themselves need neither.

use super::kernel::{Body, Call, DeviceMemory, Kernel, Match};
use super::request::RandomKey;
use crate::context::DeviceType;
use crate::dtype::DType;
use crate::error::Result;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

/// The name of a dtype in CUDA source.
pub const fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "half",
        DType::U8 => "u8",
        DType::I32 => "int",
        DType::I8 => "i8",
        DType::I64 => "Index",
        DType::Bool => "bool",
    }
}

/// A function of CUDA source, complete: what a loader compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFunction<'a> {
    /// The file in `python/rsnet/cuda/kernels/`, without its ending.
    pub source: &'static str,
    /// Text that follows the file: formulas of tables.
    pub definitions: &'a str,
    /// The function with its template arguments: `unary<relu, float>`.
    pub expression: String,
}

/// A tensor whose dtype is a template argument of a kernel's functions, and the dtypes it may have.
#[derive(Clone, Debug)]
pub struct TypeArgument {
    /// The name of an input or output.
    pub tensor: String,
    pub dtypes: &'static [DType],
}

type Issue = Arc<dyn Fn(&Call<'_>, &mut dyn Launcher) -> Result<()> + Send + Sync>;

/// A kernel for CUDA devices.
#[derive(Clone)]
pub struct DeviceKernel {
    source: &'static str,
    definitions: Cow<'static, str>,
    /// Functions that it launches, where `$0`, `$1` ... stand for the dtypes of `types`.
    functions: Vec<String>,
    types: Vec<TypeArgument>,
    /// Does it ask for [`Launcher::multiply`]?
    multiplies: bool,
    issue: Issue,
}

/// One operand of a [`MatrixProduct`]: row-major matrices.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub at: *mut u8,
    /// Elements from one row to the next.
    pub step: i64,
    /// Elements from one matrix to the next.
    pub stack: i64,
    /// The product takes the transpose.
    pub transposed: bool,
}

/// `c = alpha a b`, or `c += alpha a b`, for `stacks` row-major matrices of one dtype: (m, depth)
/// and (depth, n), before what is transposed is.
#[derive(Clone, Copy, Debug)]
pub struct MatrixProduct {
    pub dtype: DType,
    pub m: i64,
    pub n: i64,
    pub depth: i64,
    pub stacks: i64,
    pub a: Rows,
    pub b: Rows,
    pub c: Rows,
    pub alpha: f64,
    pub add: bool,
}

/// Memory of the device for as long as it has an owner.
pub trait HeldMemory: Send + Sync {
    /// Its address.
    fn at(&self) -> *mut u8;
}

/// Launches functions on the stream of a call. What is launched runs in order, after the call of
/// the kernel has returned.
pub trait Launcher {
    /// Launches the kernel's function number `function` with as many threads as `grid` says.
    fn launch(&mut self, function: usize, grid: Grid, args: &mut Args) -> Result<()>;

    /// Multiplies by the device's library of matrix products. Returns false, with nothing issued,
    /// if there is none for these matrices: the kernel launches a function of its own then.
    fn multiply(&mut self, product: &MatrixProduct) -> Result<bool>;

    /// Temporary space: memory of the device until what was launched has ended.
    fn memory(&self) -> &dyn DeviceMemory;

    /// Memory that outlives the call: what a forward run leaves for the backward one.
    fn hold(&mut self, bytes: usize) -> Result<Arc<dyn HeldMemory>>;

    /// Sets bytes of the device to zero.
    fn clear(&mut self, at: *mut u8, bytes: usize) -> Result<()>;

    /// Copies bytes within the device; source and target are apart.
    fn copy(&mut self, to: *mut u8, from: *const u8, bytes: usize) -> Result<()>;
}

/// How many blocks of how many threads run a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: u32,
}

impl Grid {
    /// Threads of a block where nothing speaks for another number.
    pub const THREADS: u32 = 256;
    /// Blocks that keep the largest device busy; a function loops over the rest.
    pub const MOST_BLOCKS: usize = 1 << 12;

    /// A thread for each of `n` pieces of work, up to a limit beyond which threads take several.
    pub fn over(n: usize) -> Self {
        Self::blocks(n.div_ceil(Self::THREADS as usize))
    }

    /// A block for each of `n` pieces of work, up to the same limit.
    pub fn blocks(n: usize) -> Self {
        let blocks = n.clamp(1, Self::MOST_BLOCKS) as u32;
        Grid { blocks: [blocks, 1, 1], threads: Self::THREADS }
    }
}

/// Extents of up to eight axes, with the steps of up to three operands: `Axes` of `prelude.cuh`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Axes {
    count: i32,
    unused: i32,
    extent: [i64; Axes::MOST],
    steps: [[i64; Axes::MOST]; 3],
}

impl Axes {
    /// More axes than these do not fit.
    pub const MOST: usize = 8;

    /// Axes of these extents and steps, of which neighbours are merged where all operands allow
    /// it. `None` if too many are left.
    pub fn new(extents: &[i64], steps: &[&[i64]]) -> Option<Axes> {
        let mut axes = Axes::default();
        for (i, &extent) in extents.iter().enumerate().filter(|axis| *axis.1 != 1) {
            let at = axes.count as usize;
            let merges = at > 0
                && steps.iter().zip(&axes.steps).all(|(s, known)| known[at - 1] == s[i] * extent);
            let to = if merges { at - 1 } else { at };
            if to == Axes::MOST {
                return None;
            }
            axes.extent[to] = if merges { axes.extent[to] * extent } else { extent };
            for (s, known) in steps.iter().zip(&mut axes.steps) {
                known[to] = s[i];
            }
            axes.count = to as i32 + 1;
        }
        Some(axes)
    }
}

/// A type that functions of CUDA source take by value.
///
/// # Safety
/// The type has the layout of the function's argument in CUDA C++, and no padding.
pub unsafe trait Argument: Copy {}

macro_rules! arguments {
    ($($t:ty),*) => {$(
        // SAFETY: numbers, addresses and structures have one layout on both sides.
        unsafe impl Argument for $t {}
    )*};
}
arguments!(*mut u8, *const u8, i32, i64, f32, f64, [u8; 8], Axes, RandomKey);

/// The arguments of a launch, in order.
#[derive(Default)]
pub struct Args {
    words: SmallVec<[u64; 24]>,
    starts: SmallVec<[u16; 12]>,
}

impl Args {
    /// Adds an argument.
    #[inline]
    pub fn push<T: Argument>(&mut self, value: T) {
        let (at, size) = (self.words.len(), size_of::<T>().div_ceil(8));
        self.starts.push(at as u16);
        // (`reserve` is a call, also where there is room.)
        if self.words.capacity() - at < size {
            self.words.reserve(size);
        }
        // SAFETY: there is room for the value, with any alignment up to that of words; a value
        // that does not fill whole words is written over a word that is set.
        unsafe {
            let place = self.words.as_mut_ptr().add(at);
            if const { !size_of::<T>().is_multiple_of(8) } {
                place.add(size - 1).write(0);
            }
            place.cast::<T>().write_unaligned(value);
            self.words.set_len(at + size);
        }
    }

    /// The addresses of all arguments, as the driver takes them.
    #[inline]
    pub fn addresses(&mut self) -> SmallVec<[*mut c_void; 12]> {
        let words = self.words.as_mut_ptr();
        let mut addresses: SmallVec<[*mut c_void; 12]> = SmallVec::new();
        if addresses.capacity() < self.starts.len() {
            addresses.reserve(self.starts.len());
        }
        for (i, &at) in self.starts.iter().enumerate() {
            // SAFETY: every start is the index of a word, and there is room for each.
            unsafe {
                addresses.as_mut_ptr().add(i).write(words.add(at as usize).cast());
                addresses.set_len(i + 1);
            }
        }
        addresses
    }
}

/// The arguments of a launch: `args![n, x.ptr(), y.ptr()]`.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => {{
        let mut args = $crate::operator::Args::default();
        $(args.push($value);)*
        args
    }};
}

impl DeviceKernel {
    /// All functions for elements of these dtypes, one for each of the type arguments.
    fn instances(&self, dtypes: &[DType]) -> impl Iterator<Item = DeviceFunction<'_>> {
        let names: Vec<_> = dtypes.iter().map(|d| c_type(*d)).collect();
        self.functions.iter().map(move |pattern| {
            let filled =
                |text: String, (i, name): (usize, &&str)| text.replace(&format!("${i}"), name);
            DeviceFunction {
                source: self.source,
                definitions: &self.definitions,
                expression: names.iter().enumerate().fold(pattern.clone(), filled),
            }
        })
    }

    /// The dtypes of the type arguments in a call on `tensors` (name, dtype, number of axes).
    pub fn dtypes(&self, tensors: &[(&str, DType, usize)]) -> SmallVec<[DType; 2]> {
        let find = |name: &str| tensors.iter().find(|t| t.0 == name);
        self.types.iter().filter_map(|t| find(&t.tensor).map(|found| found.1)).collect()
    }

    /// The functions of a call whose type arguments are these.
    pub fn functions(&self, dtypes: &[DType]) -> Vec<DeviceFunction<'_>> {
        self.instances(dtypes).collect()
    }

    /// Every function that a call could need.
    pub fn all_functions(&self) -> Vec<DeviceFunction<'_>> {
        let mut choices: Vec<Vec<DType>> = vec![Vec::new()];
        for t in &self.types {
            let longer = |known: &Vec<DType>, d: &DType| [&known[..], &[*d]].concat();
            choices = choices.iter().flat_map(|c| t.dtypes.iter().map(|d| longer(c, d))).collect();
        }
        choices.iter().flat_map(|dtypes| self.functions(dtypes)).collect()
    }

    /// Returns true if the kernel multiplies by the device's library where there is one.
    pub fn needs_products(&self) -> bool {
        self.multiplies
    }

    /// Issues a call on a device.
    pub fn issue(&self, call: &Call<'_>, launcher: &mut dyn Launcher) -> Result<()> {
        (self.issue)(call, launcher)
    }
}

impl Kernel {
    /// A kernel for CUDA devices, which adds where it is asked to, and launches functions of
    /// `source`. In their names `$0`, `$1` ... stand for the dtypes of the tensors in `types`; the
    /// kernel serves calls in which those have one of the listed dtypes.
    pub fn cuda(
        source: &'static str,
        functions: &[&str],
        types: &[(&str, &'static [DType])],
        issue: impl Fn(&Call<'_>, &mut dyn Launcher) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let on_gpu = Match::Device(DeviceType::Gpu);
        let matches = types.iter().fold(on_gpu, |known, (tensor, dtypes)| {
            let of = Match::DTypeOf((*tensor).to_owned(), dtypes.to_vec());
            Match::And(Box::new(known), Box::new(of))
        });
        let types = types.iter();
        let body = DeviceKernel {
            source,
            definitions: Cow::Borrowed(""),
            functions: functions.iter().map(|f| (*f).to_owned()).collect(),
            types: types
                .map(|(tensor, dtypes)| TypeArgument { tensor: (*tensor).to_owned(), dtypes })
                .collect(),
            multiplies: false,
            issue: Arc::new(issue),
        };
        let kernel = Kernel::new("cuda".into(), matches, Body::Device(Arc::new(body)));
        Kernel { accumulates: true, skips_null: true, ..kernel }
    }

    /// Calls tensors by other names, in the kernel's condition and in what its functions depend on.
    pub fn rename_tensors(&mut self, from: &[String], to: &[String]) {
        let named = |name: &mut String| {
            if let Some(i) = from.iter().position(|known| known == name) {
                name.clone_from(&to[i]);
            }
        };
        self.matches.for_each_tensor(&named);
        if let Body::Device(kernel) = &mut self.body {
            Arc::make_mut(kernel).types.iter_mut().for_each(|t| named(&mut t.tensor));
        }
    }

    /// For [`Kernel::cuda`]: text that follows the source file.
    pub fn with_definitions(mut self, text: String) -> Self {
        if let Body::Device(kernel) = &mut self.body {
            Arc::make_mut(kernel).definitions = Cow::Owned(text);
        }
        self
    }

    /// For [`Kernel::cuda`]: it multiplies matrices, by [`Launcher::multiply`] where there is one.
    pub fn multiplies(mut self) -> Self {
        if let Body::Device(kernel) = &mut self.body {
            Arc::make_mut(kernel).multiplies = true;
        }
        self
    }

    /// Restricts the calls that the kernel serves.
    pub fn only(mut self, condition: Match) -> Self {
        self.matches = Match::And(Box::new(self.matches), Box::new(condition));
        self
    }

    /// Declares that the kernel does not handle the request `Add` itself.
    pub fn only_writes(mut self) -> Self {
        self.accumulates = false;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOATS: &[DType] = &[DType::F32, DType::F64];

    #[test]
    fn functions_are_named_by_dtypes() {
        let types: &[(&str, &[DType])] = &[("x", FLOATS), ("y", &[DType::I64])];
        let kernel = Kernel::cuda("probe", &["f<$0, $1>", "g<$1>"], types, |_, _| Ok(()));
        let Body::Device(kernel) = &kernel.body else { panic!("a kernel for devices") };
        let tensors = [("x", DType::F64, 1), ("y", DType::I64, 2)];
        let dtypes = kernel.dtypes(&tensors);
        let names: Vec<_> = kernel.functions(&dtypes).into_iter().map(|f| f.expression).collect();
        assert_eq!(names, ["f<double, Index>", "g<Index>"]);
        assert_eq!(kernel.all_functions().len(), 4);
    }

    #[test]
    fn neighbouring_axes_are_merged() {
        let axes = Axes::new(&[2, 3, 1, 4], &[&[12, 4, 4, 1], &[0, 0, 0, 1]]).expect("few axes");
        assert_eq!((axes.count, axes.extent[0], axes.extent[1]), (2, 6, 4));
        assert_eq!((axes.steps[0][0], axes.steps[1][0]), (4, 0));
        let far: Vec<i64> = (0..9).map(|i| 100 - 7 * i).collect();
        assert!(Axes::new(&[2; 9], &[&far]).is_none());
    }

    #[test]
    fn arguments_keep_their_bytes() {
        let mut args = args![7i32, -1i64, 1.5f32];
        let at = args.addresses();
        // SAFETY: the addresses are those of the values above.
        unsafe {
            assert_eq!(at[0].cast::<i32>().read(), 7);
            assert_eq!(at[1].cast::<i64>().read(), -1);
            assert_eq!(at[2].cast::<f32>().read(), 1.5);
        }
    }
}
