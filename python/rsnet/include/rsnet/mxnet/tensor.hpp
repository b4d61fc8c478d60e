// Tensors of a fixed number of axes by mshadow's names. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_TENSOR_HPP
#define RSNET_MXNET_TENSOR_HPP

#include <rsnet/mxnet/expr.hpp>

namespace mshadow {

template <int dim>
struct Shape {
  RSNET_LOCAL static constexpr int kDimension = dim;
  index_t shape_[dim];
  MSHADOW_XINLINE index_t& operator[](int i) { return shape_[i]; }
  MSHADOW_XINLINE const index_t& operator[](int i) const { return shape_[i]; }
  size_t Size() const { return ProdShape(0, dim); }
  size_t ProdShape(int begin, int end) const {
    size_t n = 1;
    for (int i = begin; i < end; ++i) n *= shape_[i];
    return n;
  }
  bool operator==(const Shape& other) const {
    return std::equal(shape_, shape_ + dim, other.shape_);
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }
  // All axes but the last as one.
  Shape<2> FlatTo2D() const {
    return {{static_cast<index_t>(ProdShape(0, dim - 1)), shape_[dim - 1]}};
  }
};
template <int dim>
std::ostream& operator<<(std::ostream& out, const Shape<dim>& shape) {
  return out << rsnet::list_text(std::vector<index_t>(shape.shape_, shape.shape_ + dim));
}
inline Shape<1> Shape1(index_t a) { return {{a}}; }
inline Shape<2> Shape2(index_t a, index_t b) { return {{a, b}}; }
inline Shape<3> Shape3(index_t a, index_t b, index_t c) { return {{a, b, c}}; }
inline Shape<4> Shape4(index_t a, index_t b, index_t c, index_t d) { return {{a, b, c, d}}; }
inline Shape<5> Shape5(index_t a, index_t b, index_t c, index_t d, index_t e) {
  return {{a, b, c, d, e}};
}

// A row-major view: t[i] is a view of one axis less, or an element.
template <typename xpu, int dim, typename DType = real_t>
struct Tensor {
  using value_type = DType;
  DType* dptr_ = nullptr;
  Shape<dim> shape_ = {};
  index_t stride_ = 0;  // of the last axis but one: rows follow one another without gaps
  Stream<xpu>* stream_ = nullptr;

  MSHADOW_XINLINE Tensor() = default;
  explicit Tensor(const Shape<dim>& shape) : Tensor(nullptr, shape) {}
  MSHADOW_XINLINE Tensor(DType* dptr, const Shape<dim>& shape, Stream<xpu>* stream = nullptr)
      : dptr_(dptr), shape_(shape), stride_(shape[dim - 1]), stream_(stream) {}
  Tensor(DType* dptr, const Shape<dim>& shape, index_t stride, Stream<xpu>* stream)
      : Tensor(dptr, shape, stream) {
    CHECK_EQ(stride, stride_) << "(rows with gaps between them)";
  }

  // Of all elements, which `t = other` does not copy: it makes t a view of the other's.
#define RSNET_MX_ASSIGN(op, is_allowed)                                             \
  template <typename E, typename = std::enable_if_t<is_allowed>>                    \
  Tensor& operator op(const E& e) {                                                 \
    auto put = [this](size_t i, auto v) { dptr_[i] op static_cast<DType>(v); };     \
    expr::ForEach(expr::Extents(shape_), e, put);                                 \
    return *this;                                                                   \
  }
  RSNET_MX_ASSIGN(=, (expr::is_number<E> || std::is_base_of_v<expr::Any, E>))
  RSNET_MX_ASSIGN(+=, (expr::is_number<E> || expr::is_operand<E>))
  RSNET_MX_ASSIGN(-=, (expr::is_number<E> || expr::is_operand<E>))
  RSNET_MX_ASSIGN(*=, (expr::is_number<E> || expr::is_operand<E>))
  RSNET_MX_ASSIGN(/=, (expr::is_number<E> || expr::is_operand<E>))
#undef RSNET_MX_ASSIGN
  MSHADOW_XINLINE index_t size(int i) const { return shape_[i]; }
  size_t MSize() const { return shape_.Size(); }
  bool CheckContiguous() const { return true; }
  void set_stream(Stream<xpu>* stream) { stream_ = stream; }
  MSHADOW_XINLINE decltype(auto) operator[](index_t i) const {
    if constexpr (dim == 1) {
      return (dptr_[i]);
    } else {
      Shape<dim - 1> part = {};
      index_t step = 1;
      for (int k = 1; k < dim; ++k) step *= part[k - 1] = shape_[k];
      return Tensor<xpu, dim - 1, DType>(dptr_ + i * step, part, stream_);
    }
  }
  // A view of the entries begin to end - 1 of the first axis.
  Tensor Slice(index_t begin, index_t end) const {
    if (begin < 0 || begin > end || end > shape_[0]) {
      throw rsnet::Failure("Slice(" + std::to_string(begin) + ", " + std::to_string(end) +
                           ") of an axis of " + std::to_string(shape_[0]));
    }
    Tensor part = *this;
    part.shape_[0] = end - begin;
    if (shape_[0] > 0) part.dptr_ += begin * static_cast<index_t>(shape_.Size() / shape_[0]);
    if constexpr (dim == 1) part.stride_ = part.shape_[0];
    return part;
  }
  Tensor<xpu, 1, DType> FlatTo1D() const {
    return {dptr_, Shape1(static_cast<index_t>(shape_.Size())), stream_};
  }
  // All axes but the last as one.
  Tensor<xpu, 2, DType> FlatTo2D() const { return {dptr_, shape_.FlatTo2D(), stream_}; }
  // The transposed matrix, in expressions.
  expr::Transposed<DType> T() const {
    static_assert(dim == 2, "only a matrix is transposed");
    return {dptr_, shape_[0], shape_[1]};
  }
};

// Copies the elements of a tensor to one of the same shape.
template <int dim, typename DType>
void Copy(Tensor<cpu, dim, DType> to, const Tensor<cpu, dim, DType>& from,
          Stream<cpu>* = nullptr) {
  if (to.shape_ != from.shape_) throw rsnet::Failure("Copy between tensors of different shapes");
  if (from.shape_.Size() > 0) std::memmove(to.dptr_, from.dptr_, from.shape_.Size() * sizeof(DType));
}

// Memory of the library's own, on the host, until FreeSpace. Where a kernel can ask for temporary
// space instead, that is kept between calls.
template <int dim, typename DType>
void AllocSpace(Tensor<cpu, dim, DType>* tensor, bool /*pad*/ = false) {
  tensor->dptr_ = new DType[tensor->shape_.Size()];
}
template <int dim, typename DType>
void FreeSpace(Tensor<cpu, dim, DType>* tensor) {
  delete[] tensor->dptr_;
  tensor->dptr_ = nullptr;
}
template <typename xpu, typename DType, int dim>
Tensor<xpu, dim, DType> NewTensor(const Shape<dim>& shape, DType value, bool pad = false,
                                  Stream<xpu>* stream = nullptr) {
  Tensor<xpu, dim, DType> tensor(nullptr, shape, stream);
  AllocSpace(&tensor, pad);
  tensor = value;
  return tensor;
}

// ---- Softmax -----------------------------------------------------------------------------------

// The softmax of every row.
template <typename DType>
void Softmax(Tensor<cpu, 2, DType> to, const Tensor<cpu, 2, DType>& from) {
  for (index_t i = 0; i < to.size(0); ++i) {
    const auto x = from[i];
    const auto y = to[i];
    const index_t n = to.size(1);
    if (n == 0) continue;
    const DType most = *std::max_element(x.dptr_, x.dptr_ + n);
    using Sum = expr::Sum<DType>;
    Sum sum = 0;
    for (index_t k = 0; k < n; ++k) {
      y[k] = static_cast<DType>(std::exp(static_cast<Sum>(x[k] - most)));
      sum += static_cast<Sum>(y[k]);
    }
    for (index_t k = 0; k < n; ++k) y[k] = static_cast<DType>(static_cast<Sum>(y[k]) / sum);
  }
}
// The gradient of the cross entropy: the softmax less 1 at the label of every row.
template <typename DType>
void SoftmaxGrad(Tensor<cpu, 2, DType> to, const Tensor<cpu, 2, DType>& from,
                 const Tensor<cpu, 1, DType>& label) {
  for (index_t i = 0; i < to.size(0); ++i) {
    const index_t own = static_cast<index_t>(label[i]);
    for (index_t k = 0; k < to.size(1); ++k) {
      to[i][k] = static_cast<DType>(from[i][k] - static_cast<DType>(k == own ? 1 : 0));
    }
  }
}

}  // namespace mshadow

#endif  // RSNET_MXNET_TENSOR_HPP
