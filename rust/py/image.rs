//! Images of files as arrays, and back.

use super::convert::view_of_numpy;
use super::error::IntoPy;
use super::ndarray::PyNDArray;
use super::runtime;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::image::decode::{Colour, Picture, decode, has_colour};
use crate::image::encode::encode;
use crate::kernels::image::Extent;
use crate::ndarray::NDArray;
use crate::shape::Shape;
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// The bytes of a NumPy array of dtype uint8.
fn bytes_of(array: &Bound<'_, PyUntypedArray>) -> PyResult<Vec<u8>> {
    let view = view_of_numpy(array)?;
    if view.dtype() != DType::U8 {
        let error = Error::argument("buf", "dtype", view.dtype(), "uint8");
        return Err(error).py(array.py());
    }
    // SAFETY: the array is alive, and the interpreter is held: nothing writes it meanwhile.
    Ok(unsafe { view.slice::<u8>() }.to_vec())
}

/// The picture as an array (H, W, C) that takes its memory over.
pub fn array_of(picture: Picture) -> NDArray {
    let Extent { height, width, channels } = picture.extent;
    let shape = Shape::new(&[height as i64, width as i64, channels as i64]);
    let mut samples = picture.samples;
    let ptr = samples.as_mut_ptr();
    // SAFETY: the vector is kept and never touched again; its block stays where it is.
    unsafe {
        NDArray::external(runtime(), Arc::new(samples), ptr, &shape, DType::U8, Default::default())
    }
}

/// Decodes the bytes of an image file to an array (H, W, C).
#[pyfunction]
#[pyo3(signature = (buf, flag=1, to_rgb=true))]
fn decode_image(
    py: Python<'_>,
    buf: &Bound<'_, PyUntypedArray>,
    flag: i64,
    to_rgb: bool,
) -> PyResult<PyNDArray> {
    let bytes = bytes_of(buf)?;
    let flag = if flag == -1 { i64::from(has_colour(&bytes)) } else { flag };
    let colour = match flag {
        0 => Colour::Grey,
        1 if to_rgb => Colour::Rgb,
        1 => Colour::Bgr,
        _ => {
            return Err(Error::argument(
                "flag",
                "value",
                flag,
                "0 (grey), 1 (colour) or -1 (as stored)",
            ))
            .py(py);
        }
    };
    let picture: Result<Picture> = py.detach(|| decode(&bytes, colour));
    Ok(PyNDArray::of(array_of(picture.py(py)?)))
}

/// Encodes an image (H, W, C) or (H, W) of dtype uint8; RGB.
#[pyfunction]
fn encode_image<'py>(
    image: &Bound<'py, PyUntypedArray>,
    format: &str,
    quality: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = image.py();
    let extent = match *image.shape() {
        [height, width] => Extent { height, width, channels: 1 },
        [height, width, channels] => Extent { height, width, channels },
        _ => {
            let got = Shape::from_iter(image.shape().iter().copied());
            let expected = "(height, width) or (height, width, channels)";
            return Err(Error::argument("img", "shape", got, expected)).py(py);
        }
    };
    let picture = Picture { extent, samples: bytes_of(image)? };
    let bytes = py.detach(|| encode(&picture, format, quality)).py(py)?;
    Ok(PyBytes::new(py, &bytes))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(decode_image, m)?)?;
    m.add_function(wrap_pyfunction!(encode_image, m)?)
}
