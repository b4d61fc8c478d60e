// Places of elements in row-major arrays, for kernels that broadcast, reduce or transpose. See
// rsnet/mxnet.h.
#ifndef RSNET_MXNET_INDEX_HPP
#define RSNET_MXNET_INDEX_HPP

#include <rsnet/mxnet/base.hpp>

namespace mxnet {
namespace op {
namespace mxnet_op {

// The coordinates of element `i`.
template <int ndim>
MSHADOW_XINLINE mshadow::Shape<ndim> unravel(index_t i, const mshadow::Shape<ndim>& shape) {
  mshadow::Shape<ndim> coord = {};
  for (int k = ndim - 1; k >= 0; --k) {
    coord[k] = i % shape[k];
    i /= shape[k];
  }
  return coord;
}
// The element at coordinates, which along an axis of extent 1 are all its only entry.
template <int ndim>
MSHADOW_XINLINE index_t ravel(const mshadow::Shape<ndim>& coord, const mshadow::Shape<ndim>& shape) {
  index_t i = 0;
  for (int k = 0; k < ndim; ++k) i = i * shape[k] + (coord[k] < shape[k] ? coord[k] : 0);
  return i;
}
template <int ndim>
MSHADOW_XINLINE index_t dot(const mshadow::Shape<ndim>& coord, const mshadow::Shape<ndim>& stride) {
  index_t sum = 0;
  for (int k = 0; k < ndim; ++k) sum += coord[k] * stride[k];
  return sum;
}
// How far apart neighbours along each axis are: 0 along one of extent 1, which is repeated.
template <int ndim>
MSHADOW_XINLINE mshadow::Shape<ndim> calc_stride(const mshadow::Shape<ndim>& shape) {
  mshadow::Shape<ndim> stride = {};
  index_t step = 1;
  for (int k = ndim - 1; k >= 0; --k) {
    stride[k] = shape[k] > 1 ? step : 0;
    step *= shape[k];
  }
  return stride;
}
// Where element `i` of `shape` is in an array of these strides.
template <int ndim>
MSHADOW_XINLINE index_t unravel_dot(index_t i, const mshadow::Shape<ndim>& shape,
                                    const mshadow::Shape<ndim>& stride) {
  return dot(unravel(i, shape), stride);
}
// The next coordinates, and the places in one or two arrays of these strides.
template <int ndim>
MSHADOW_XINLINE void inc(mshadow::Shape<ndim>* coord, const mshadow::Shape<ndim>& shape) {
  ++(*coord)[ndim - 1];
  for (int k = ndim - 1; k > 0 && (*coord)[k] >= shape[k]; --k) {
    (*coord)[k] -= shape[k];
    ++(*coord)[k - 1];
  }
}
template <int ndim>
MSHADOW_XINLINE void inc(mshadow::Shape<ndim>* coord, const mshadow::Shape<ndim>& shape,
                         index_t* at, const mshadow::Shape<ndim>& stride) {
  inc(coord, shape);
  *at = dot(*coord, stride);
}
template <int ndim>
MSHADOW_XINLINE void inc(mshadow::Shape<ndim>* coord, const mshadow::Shape<ndim>& shape,
                         index_t* at, const mshadow::Shape<ndim>& stride, index_t* at2,
                         const mshadow::Shape<ndim>& stride2) {
  inc(coord, shape, at, stride);
  *at2 = dot(*coord, stride2);
}

}  // namespace mxnet_op
}  // namespace op
}  // namespace mxnet

#endif  // RSNET_MXNET_INDEX_HPP
