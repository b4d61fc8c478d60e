//! Batches of images from record files: `_core.ImageLoader`.

use super::convert::{dtype_to_py, parameter, shape_to_py, view_of_numpy};
use super::error::{IntoPy, poll_signals};
use super::ndarray::PyNDArray;
use super::runtime;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::image::loader::Loader;
use crate::image::normalise::Normalise;
use crate::image::params::{AugmentParam, BatchParam, DetectParam, NormalizeParam};
use crate::image::plan::{Augment, LoadPlan};
use crate::lock::Lock;
use crate::ndarray::Base;
use crate::operator::{ParamStruct, Schema, Value};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// Prepares batches ahead on threads of its own.
#[pyclass(frozen, name = "ImageLoader", module = "rsnet._core")]
pub struct PyImageLoader {
    /// `None` once it is closed.
    loader: Lock<Option<Arc<Loader>>>,
    dtype: DType,
}

/// The schemas of an iterator's parameters.
fn schemas(detects: bool) -> [Schema; 3] {
    let augment = if detects { DetectParam::schema() } else { AugmentParam::schema() };
    [BatchParam::schema(), augment, NormalizeParam::schema()]
}

/// The parameters of a struct, out of those of all.
fn parsed<P: ParamStruct>(given: &[(String, Value)]) -> Result<P> {
    let schema = P::schema();
    let own: Vec<(&str, Value)> = given
        .iter()
        .filter(|(name, _)| schema.fields.iter().any(|field| field.name == *name))
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let values = schema.parse(&own)?;
    P::from_values(&values)
        .ok_or_else(|| Error::internal("parameters that do not fit their struct"))
}

fn plan(
    given: &[(String, Value)],
    detects: bool,
    dtype: DType,
    mean: Option<Vec<f32>>,
) -> Result<(LoadPlan, DType)> {
    let batch: BatchParam = parsed(given)?;
    let normalise: NormalizeParam = parsed(given)?;
    let size: i64 = batch.data_shape.iter().product();
    if let Some(got) = mean.as_ref().map(Vec::len).filter(|got| *got as i64 != size) {
        return Err(Error::argument("mean_img", "number of elements", got, size));
    }
    let augment = if detects {
        Augment::Detect(Box::new(parsed(given)?))
    } else {
        Augment::Image(parsed(given)?)
    };
    let dtype = batch.dtype.unwrap_or(dtype);
    let base: &Arc<Base> = runtime();
    Ok((LoadPlan::new(&batch, augment, Normalise::new(normalise, mean)?, dtype, base)?, dtype))
}

#[pymethods]
impl PyImageLoader {
    #[new]
    fn new(
        py: Python<'_>,
        params: &Bound<'_, PyDict>,
        detects: bool,
        dtype: &str,
        mean: Option<&Bound<'_, PyUntypedArray>>,
    ) -> PyResult<Self> {
        let fields = schemas(detects).into_iter().flat_map(|schema| schema.fields).collect();
        let schema = Schema { fields, open: false };
        let mut given: Vec<(String, Value)> = Vec::with_capacity(params.len());
        for (name, value) in params.iter() {
            let name: String = name.extract()?;
            let value = parameter("", &schema, &name, &value)?;
            given.push((name, value));
        }
        let dtype = DType::from_name(dtype).py(py)?;
        let mean = match mean.map(view_of_numpy).transpose()? {
            Some(view) if view.dtype() == DType::F32 => {
                // SAFETY: the array is alive, and the interpreter is held.
                Some(unsafe { view.slice::<f32>() }.to_vec())
            }
            Some(view) => {
                let error = Error::argument("mean_img", "dtype", view.dtype(), "float32");
                return Err(error).py(py);
            }
            None => None,
        };
        let (loader, dtype) = py
            .detach(|| {
                let (plan, dtype) = plan(&given, detects, dtype, mean)?;
                Ok::<_, Error>((Loader::new(plan)?, dtype))
            })
            .py(py)?;
        Ok(PyImageLoader { loader: Lock::new(Some(Arc::new(loader))), dtype })
    }

    /// The next batch of the epoch: data, labels, ids, and how many images are padding.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let loader = self.open(py)?;
        let Some(batch) = py.detach(|| loader.next(&mut poll_signals)).py(py)? else {
            return Ok(None);
        };
        let data = Bound::new(py, PyNDArray::of(batch.data))?.into_any();
        let label = Bound::new(py, PyNDArray::of(batch.label))?.into_any();
        let ids = batch.ids.into_pyobject(py)?;
        let pad = batch.pad.into_pyobject(py)?.into_any();
        Ok(Some(PyTuple::new(py, [data, label, ids, pad])?))
    }

    /// Begins the next epoch.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        let loader = self.open(py)?;
        py.detach(|| loader.reset(&mut poll_signals)).py(py)
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        let loader = self.loader.lock().take();
        py.detach(|| drop(loader));
    }

    /// How many damaged records were skipped, and what was wrong with the first.
    fn skipped(&self, py: Python<'_>) -> PyResult<(usize, Option<String>)> {
        let (count, first) = self.open(py)?.skipped().py(py)?;
        Ok((count, first.map(|error| error.message().to_owned())))
    }

    /// Records of an epoch.
    #[getter]
    fn records(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.plan().records())
    }

    /// The shape of a batch's images.
    #[getter]
    fn data_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape_to_py(py, &self.open(py)?.plan().data_shape())
    }

    /// The shape of a batch's labels.
    #[getter]
    fn label_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        shape_to_py(py, &self.open(py)?.plan().label_shape())
    }

    /// The dtype of a batch's images.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dtype_to_py(py, self.dtype)
    }
}

impl PyImageLoader {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Loader>> {
        let loader = self.loader.lock().clone();
        loader.ok_or_else(|| Error::value("the iterator is closed: make a new one")).py(py)
    }
}

/// Name, type and meaning of every parameter.
#[pyfunction]
fn image_loader_params(detects: bool) -> Vec<(String, String, String)> {
    let fields = schemas(detects).into_iter().flat_map(|schema| schema.fields);
    fields.map(|field| (field.name.clone(), field.info(), field.doc)).collect()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyImageLoader>()?;
    m.add_function(wrap_pyfunction!(image_loader_params, m)?)
}
