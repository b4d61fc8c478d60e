// TBlob: an array of a call, or a view of memory of the library's own. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_BLOB_HPP
#define RSNET_MXNET_BLOB_HPP

#include <rsnet/mxnet/base.hpp>

namespace mxnet {

class TBlob {
 public:
  TBlob() = default;
  explicit TBlob(const rsnet_tensor& t)
      : dptr_(rsnet_data(&t)),
        shape_(t.shape, t.shape + t.ndim),
        type_flag_(FlagOf(t.dtype)),
        dev_mask_(t.device.device_type) {}
  // Row-major memory that outlives the blob; dev_mask is cpu::kDevMask or gpu::kDevMask.
  TBlob(void* dptr, const TShape& shape, int dev_mask, int type_flag, int dev_id = -1)
      : dptr_(dptr), shape_(shape), type_flag_(type_flag), dev_mask_(dev_mask), dev_id_(dev_id) {}
  template <typename DType>
  TBlob(DType* dptr, const TShape& shape, int dev_mask)
      : TBlob(dptr, shape, dev_mask, mshadow::DataType<DType>::kFlag) {}
  template <typename xpu, int dim, typename DType>
  TBlob(const mshadow::Tensor<xpu, dim, DType>& tensor)
      : TBlob(tensor.dptr_, TShape(tensor.shape_), xpu::kDevMask, mshadow::DataType<DType>::kFlag) {
  }

  void* dptr_ = nullptr;
  TShape shape_;
  int type_flag_ = -1;

  int dev_mask() const { return dev_mask_; }
  int dev_id() const { return dev_id_; }
  int ndim() const { return static_cast<int>(shape_.ndim()); }
  index_t size(int i) const { return shape_[i]; }
  size_t Size() const { return shape_.Size(); }
  bool CheckContiguous() const { return true; }
  template <typename DType>
  DType* dptr() const {
    CHECK_EQ(mshadow::DataType<DType>::kFlag, type_flag_)
        << "(TBlob.get_with_shape: data type do not match specified type)";
    return static_cast<DType*>(dptr_);
  }
  template <typename xpu, int dim, typename DType>
  mshadow::Tensor<xpu, dim, DType> get(mshadow::Stream<xpu>* s = nullptr) const {
    return {dptr<DType>(), shape_.get<dim>(), s};
  }
  template <typename xpu, int dim, typename DType>
  mshadow::Tensor<xpu, dim, DType> get_with_shape(const mshadow::Shape<dim>& shape,
                                                  mshadow::Stream<xpu>* s = nullptr) const {
    CHECK_EQ(shape.Size(), Size()) << "(the new shape has another number of elements)";
    return {dptr<DType>(), shape, s};
  }
  // The same elements under another shape.
  TBlob reshape(const TShape& shape) const {
    CHECK_EQ(shape.Size(), Size()) << "(the new shape has another number of elements)";
    TBlob blob = *this;
    blob.shape_ = shape;
    return blob;
  }
  template <typename xpu, typename DType>
  mshadow::Tensor<xpu, 1, DType> FlatTo1D(mshadow::Stream<xpu>* s = nullptr) const {
    return {dptr<DType>(), mshadow::Shape1(static_cast<index_t>(Size())), s};
  }
  // All axes but the last as one.
  template <typename xpu, typename DType>
  mshadow::Tensor<xpu, 2, DType> FlatTo2D(mshadow::Stream<xpu>* s = nullptr) const {
    return {dptr<DType>(), shape_.FlatTo2D(), s};
  }
  template <typename xpu, typename DType>
  mshadow::Tensor<xpu, 3, DType> FlatTo3D(int axis, mshadow::Stream<xpu>* s = nullptr) const {
    return {dptr<DType>(), shape_.FlatTo3D(axis), s};
  }
  template <typename xpu, typename DType>
  mshadow::Tensor<xpu, 3, DType> FlatTo3D(int axis_begin, int axis_end,
                                          mshadow::Stream<xpu>* s = nullptr) const {
    return {dptr<DType>(), shape_.FlatTo3D(axis_begin, axis_end), s};
  }
  // As many axes as dim says: the first ones as one, or axes of extent 1 in front.
  template <typename xpu, int dim, typename DType>
  mshadow::Tensor<xpu, dim, DType> FlatToKD(mshadow::Stream<xpu>* s = nullptr) const {
    mshadow::Shape<dim> shape;
    for (int i = 0; i < dim; ++i) shape[i] = 1;
    for (int i = ndim() - 1, at = dim - 1; i >= 0; --i) {
      shape[at] *= shape_[i];
      if (at > 0) --at;
    }
    return {dptr<DType>(), shape, s};
  }

 private:
  int dev_mask_ = RSNET_CPU;
  int dev_id_ = -1;
};

}  // namespace mxnet

#endif  // RSNET_MXNET_BLOB_HPP
