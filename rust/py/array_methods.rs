//! The methods of the class `NDArray`: number slots, properties, waits and copies. Methods that
//! need no speed are added to the class by the Python package. pyo3 wants all methods of a class in
//! one block, so only what they call can live in other files.

use super::arithmetic::{BinaryFn, binary, negated, not_an_operand};
use super::array_indexing::{rows, source_of_all};
use super::call_site::at_call_site;
use super::convert::{
    context_arg, context_to_py, dtype_to_py, numpy_empty, shape_arg, shape_to_py, view_of_numpy,
};
use super::error::{IntoPy, invalid, poll_signals, to_py};
use super::ndarray::{PyNDArray, nothing, overwrite, read, wait_to_read};
use super::package::package;
use super::profiler::api;
use super::thread_state::thread_state;
use super::{function, runtime};
use crate::executor::transfer::{
    Region, push_copy, push_fill, push_gather, push_region, push_scatter,
};
use crate::kernels::copy::copy;
use numpy::{PyReadonlyArray1, PyUntypedArray};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

macro_rules! slots {
    ($($forward:ident $backward:ident $inplace:ident $op:ident;)*) => {
        #[pymethods]
        impl PyNDArray {
            $(
                fn $forward(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    binary(slf, other, BinaryFn::$op, false, None)
                }
                fn $backward(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    binary(slf, other, BinaryFn::$op, true, None)
                }
                fn $inplace(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    let result = binary(slf, other, BinaryFn::$op, false, Some(slf))?;
                    if result.is(slf.py().NotImplemented()) {
                        return Err(not_an_operand(BinaryFn::$op, other, false));
                    }
                    Ok(())
                }
            )*

            /// An array that is nothing until `__setstate__`: what unpickling begins with.
            #[new]
            #[pyo3(signature = (handle=None, writable=true))]
            fn new(
                py: Python<'_>,
                handle: Option<&Bound<'_, PyAny>>,
                writable: bool,
            ) -> PyResult<Self> {
                nothing(py, handle, writable)
            }

            /// Makes the object a handle of `array`.
            fn _restore(&self, array: &Bound<'_, PyNDArray>) -> PyResult<()> {
                match self.restore(array.get().array()) {
                    true => Ok(()),
                    false => Err(PyValueError::new_err("invalid array: expected one without a state")),
                }
            }

            fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
                super::tape_node::traverse(self.tracked(), &visit)
            }

            fn __clear__(&self) {
                self.tracked().forget();
            }

            fn __pow__(
                slf: &Bound<'_, Self>,
                other: &Bound<'_, PyAny>,
                _modulo: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                binary(slf, other, BinaryFn::Pow, false, None)
            }

            fn __rpow__(
                slf: &Bound<'_, Self>,
                other: &Bound<'_, PyAny>,
                _modulo: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Py<PyAny>> {
                binary(slf, other, BinaryFn::Pow, true, None)
            }

            fn __neg__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
                negated(slf)
            }

            fn __abs__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
                function::call_named(slf.py(), "abs", &[], &[slf.get().tracked()], None)
            }

            fn __richcmp__(
                slf: &Bound<'_, Self>,
                other: &Bound<'_, PyAny>,
                how: CompareOp,
            ) -> PyResult<Py<PyAny>> {
                let op = match how {
                    CompareOp::Eq => BinaryFn::Eq,
                    CompareOp::Ne => BinaryFn::Ne,
                    CompareOp::Lt => BinaryFn::Lt,
                    CompareOp::Le => BinaryFn::Le,
                    CompareOp::Gt => BinaryFn::Gt,
                    CompareOp::Ge => BinaryFn::Ge,
                };
                let result = binary(slf, other, op, false, None)?;
                if result.is(slf.py().NotImplemented()) {
                    // Python would go on to compare identities.
                    return Err(not_an_operand(op, other, false));
                }
                Ok(result)
            }

            fn __hash__(slf: &Bound<'_, Self>) -> isize {
                slf.as_ptr() as isize / 16
            }

            fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
                match self.array().size() {
                    0 => Ok(false),
                    1 => self.asnumpy(py)?.call_method0("any")?.is_truthy(),
                    _ => Err(PyValueError::new_err(
                        "The truth value of an NDArray with multiple elements is ambiguous: \
                         expected one element (asnumpy().any() and asnumpy().all() ask all of them)",
                    )),
                }
            }

            /// Handles rows by number or range; the Python package handles all other keys.
            fn __getitem__(
                slf: &Bound<'_, Self>,
                key: &Bound<'_, PyAny>,
            ) -> PyResult<Py<PyAny>> {
                let py = slf.py();
                match rows(slf.get(), key)? {
                    Some(part) => Ok(Bound::new(py, PyNDArray::of(part))?.into_any().unbind()),
                    None => Ok(package(py)?.getitem(slf, key)?.unbind()),
                }
            }

            /// Handles the assignment of an equal array to all rows, as operators write their
            /// results; the Python package handles all other keys.
            fn __setitem__(
                slf: &Bound<'_, Self>,
                key: &Bound<'_, PyAny>,
                value: &Bound<'_, PyAny>,
            ) -> PyResult<()> {
                let py = slf.py();
                match source_of_all(slf.get(), key, value)? {
                    Some(source) => slf.get()._copy_from(py, source),
                    None => package(py)?.setitem(slf, key, value),
                }
            }

            fn __len__(&self) -> PyResult<usize> {
                match self.array().shape().dims().first() {
                    Some(&n) => Ok(n as usize),
                    None => Err(PyTypeError::new_err("len() of an unsized NDArray")),
                }
            }

            /// Extents of the axes, a tuple.
            #[getter]
            fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
                shape_to_py(py, self.array().shape())
            }

            /// Number of elements.
            #[getter]
            fn size(&self) -> usize {
                self.array().size()
            }

            /// Number of axes.
            #[getter]
            fn ndim(&self) -> usize {
                self.array().shape().ndim()
            }

            /// NumPy type of the elements.
            #[getter]
            fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                dtype_to_py(py, self.array().dtype())
            }

            /// Device of the array.
            #[getter]
            fn context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                context_to_py(py, self.array().context())
            }

            /// Device of the array, as `context`.
            #[getter]
            fn ctx<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.context(py)
            }

            /// The gradient buffer, or None.
            #[getter]
            fn grad(&self) -> Option<PyNDArray> {
                self.tracked().grad().map(|(array, _)| PyNDArray::of(array))
            }

            /// How `backward` writes the gradient: "write", "add" or "null".
            #[getter]
            fn grad_req(&self) -> &'static str {
                self.tracked().grad().map_or("null", |(_, req)| req.name())
            }

            /// True if a backward pass has written `grad` since this was last set to False.
            #[getter]
            fn _fresh_grad(&self) -> bool {
                self.tracked().entry().and_then(|e| e.is_fresh()).unwrap_or(false)
            }

            #[setter(_fresh_grad)]
            fn set_fresh_grad(&self, state: bool) -> PyResult<()> {
                match self.tracked().entry() {
                    Some(entry) if entry.set_fresh(state) => Ok(()),
                    _ => Err(PyValueError::new_err("an array without a gradient has no \
                                                    _fresh_grad")),
                }
            }

            /// Waits until every earlier write is done; raises here what failed there.
            fn wait_to_read(&self, py: Python<'_>) -> PyResult<()> {
                wait_to_read(py, self.array())
            }

            /// Waits until every earlier use is done.
            pub fn wait_to_write(&self, py: Python<'_>) -> PyResult<()> {
                let array = self.array();
                py.detach(|| array.wait_to_write(&mut poll_signals)).py(py)
            }

            /// A copy as a NumPy array; waits for pending writes.
            fn asnumpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let array = self.array();
                let result = numpy_empty(py, array.shape(), array.dtype())?;
                let target = view_of_numpy(result.cast::<PyUntypedArray>()?)?;
                read(py, array, |view| copy(view, &target))?;
                Ok(result)
            }

            /// The same memory without history.
            fn detach(&self) -> PyNDArray {
                PyNDArray::of(self.array().clone())
            }

            /// Rows `begin..end`, sharing memory.
            fn _slice(&self, py: Python<'_>, begin: usize, end: usize) -> PyResult<PyNDArray> {
                self.array().slice(begin, end).py(py).map(PyNDArray::of)
            }

            /// Row `i`, sharing memory.
            fn _at(&self, py: Python<'_>, i: usize) -> PyResult<PyNDArray> {
                self.array().at(i).py(py).map(PyNDArray::of)
            }

            /// The elements from number `offset` on as an array of `shape`, sharing memory.
            fn _part(
                &self,
                py: Python<'_>,
                offset: usize,
                shape: &Bound<'_, PyAny>,
            ) -> PyResult<PyNDArray> {
                let array = self.array();
                let offset = offset * array.dtype().size();
                array.part(offset, &shape_arg(shape)?, array.dtype()).py(py).map(PyNDArray::of)
            }

            /// The elements in another shape, sharing memory.
            fn _reshaped(&self, py: Python<'_>, shape: &Bound<'_, PyAny>) -> PyResult<PyNDArray> {
                self.array().reshape(shape_arg(shape)?).py(py).map(PyNDArray::of)
            }

            /// Returns true if the two share one chunk of memory.
            fn _same_memory(&self, other: &Bound<'_, PyNDArray>) -> bool {
                self.array().same_chunk(other.get().array())
            }

            /// Returns true if the array is part of a recorded graph.
            #[getter]
            fn _is_tracked(&self) -> bool {
                self.tracked().is_tracked()
            }

            fn _forget(&self) {
                self.tracked().forget();
            }

            /// Pushes a copy of `source` into this array, converting its dtype.
            fn _copy_from(&self, py: Python<'_>, source: &Bound<'_, PyNDArray>) -> PyResult<()> {
                self.refuse_if_recorded(py)?;
                at_call_site(|| push_copy(source.get().array(), self.array())).py(py)
            }

            /// Returns true if the array's memory may be written to.
            #[getter]
            fn writable(&self) -> bool {
                self.array().is_writable()
            }

            /// Pushes `self[...] = value`.
            fn _fill(&self, py: Python<'_>, value: f64) -> PyResult<()> {
                self.refuse_if_recorded(py)?;
                at_call_site(|| push_fill(self.array(), value)).py(py)
            }

            /// Pushes a copy of a region of `source` to a region of this array: offsets, extents
            /// and steps in elements.
            #[expect(clippy::too_many_arguments, reason = "the arguments of a Python function")]
            fn _copy_region(
                &self,
                py: Python<'_>,
                offset: usize,
                extents: Vec<i64>,
                steps: Vec<i64>,
                source: &Bound<'_, PyNDArray>,
                source_offset: usize,
                source_steps: Vec<i64>,
            ) -> PyResult<()> {
                self.refuse_if_recorded(py)?;
                let from = Region {
                    offset: source_offset,
                    extents: extents.clone(),
                    steps: source_steps,
                };
                let to = Region { offset, extents, steps };
                at_call_site(|| push_region(source.get().array(), from, self.array(), to)).py(py)
            }

            /// Pushes `self[i] = source[positions[i]]` over flat positions.
            fn _gather(
                &self,
                py: Python<'_>,
                source: &Bound<'_, PyNDArray>,
                positions: PyReadonlyArray1<'_, i64>,
            ) -> PyResult<()> {
                let positions = positions.as_slice()?.to_vec();
                at_call_site(|| push_gather(source.get().array(), positions, self.array())).py(py)
            }

            /// Pushes `self[positions[i]] = source[i]` over flat positions.
            fn _scatter(
                &self,
                py: Python<'_>,
                source: &Bound<'_, PyNDArray>,
                positions: PyReadonlyArray1<'_, i64>,
            ) -> PyResult<()> {
                self.refuse_if_recorded(py)?;
                let positions = positions.as_slice()?.to_vec();
                at_call_site(|| push_scatter(source.get().array(), positions, self.array())).py(py)
            }

            /// Waits until nothing uses this array, then copies a C-contiguous NumPy array of equal
            /// size.
            fn _copy_from_numpy(
                &self,
                py: Python<'_>,
                source: &Bound<'_, PyUntypedArray>,
            ) -> PyResult<()> {
                self.refuse_if_recorded(py)?;
                let view = view_of_numpy(source)?;
                let array = self.array();
                if view.size() != array.size() {
                    let expected = format!("one of as many elements as {}", array.shape());
                    let error = invalid("shape", view.shape(), expected);
                    return Err(PyValueError::new_err(error));
                }
                if array.needs_wait() {
                    self.wait_to_write(py)?;
                }
                overwrite(py, array, &view)
            }

            /// Number of completed writes that went through the engine.
            #[getter]
            fn version(&self) -> u64 {
                self.array().version()
            }
        }
    };
}

slots! {
    __add__ __radd__ __iadd__ Add;
    __sub__ __rsub__ __isub__ Sub;
    __mul__ __rmul__ __imul__ Mul;
    __truediv__ __rtruediv__ __itruediv__ Div;
    __mod__ __rmod__ __imod__ Mod;
}

impl PyNDArray {
    fn refuse_if_recorded(&self, py: Python<'_>) -> PyResult<()> {
        if thread_state().recording && self.tracked().is_in_graph() {
            return Err(to_py(py, &crate::executor::autograd::already_recorded()));
        }
        Ok(())
    }
}

/// Waits for everything pushed before; raises the first error that no wait has raised yet.
#[pyfunction]
fn waitall(py: Python<'_>) -> PyResult<()> {
    let _called = api("waitall");
    py.detach(|| runtime().wait_for_all(&mut poll_signals)).py(py)
}

/// Bytes in the pool of a device, by default the host's: used, cached, peak.
#[pyfunction]
#[pyo3(signature = (ctx=None))]
fn memory_usage(py: Python<'_>, ctx: Option<&Bound<'_, PyAny>>) -> PyResult<(usize, usize, usize)> {
    let u = runtime().pool_of(device_or_host(ctx)?).py(py)?.usage();
    Ok((u.used_bytes, u.cached_bytes, u.peak_bytes))
}

/// Returns cached memory of a device, by default the host, to the system.
#[pyfunction]
#[pyo3(signature = (ctx=None))]
fn empty_cache(py: Python<'_>, ctx: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let ctx = device_or_host(ctx)?;
    let pool = runtime().pool_of(ctx).py(py)?;
    py.detach(|| pool.release_cached());
    if !ctx.is_host() {
        let device = runtime().cuda.device(ctx.device_id).py(py)?;
        py.detach(|| device.pinned().release_cached());
    }
    Ok(())
}

/// Most bytes that the pool of a device may hold; None without a limit.
#[pyfunction]
fn memory_limit(py: Python<'_>, ctx: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    Ok(runtime().pool_of(device_or_host(Some(ctx))?).py(py)?.limit())
}

/// Sets the most bytes that the pool of a device may hold.
#[pyfunction]
fn set_memory_limit(py: Python<'_>, ctx: &Bound<'_, PyAny>, limit: Option<usize>) -> PyResult<()> {
    runtime().pool_of(device_or_host(Some(ctx))?).py(py)?.set_limit(limit);
    Ok(())
}

fn device_or_host(ctx: Option<&Bound<'_, PyAny>>) -> PyResult<crate::Context> {
    ctx.map_or(Ok(crate::Context::default()), |ctx| context_arg(Some(ctx)))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyNDArray>()?;
    macro_rules! add {
        ($($f:ident),*) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)* };
    }
    add!(waitall, memory_usage, memory_limit, set_memory_limit, empty_cache);
    Ok(())
}
