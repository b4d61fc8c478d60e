// Kernel<OP, xpu>::Launch and the functions of element-wise operators. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_KERNEL_HPP
#define RSNET_MXNET_KERNEL_HPP

#include <rsnet/mxnet/index.hpp>
#include <rsnet/mxnet/registry.hpp>

namespace mxnet {
namespace op {
namespace mxnet_op {

using mshadow::Stream;

template <typename OP, typename xpu>
struct Kernel;

struct set_zero {
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* out) {
    out[i] = static_cast<DType>(0);
  }
};
struct set_one {
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* out) {
    out[i] = static_cast<DType>(1);
  }
};

template <int req>
struct set_to {
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* out, const DType value) {
    KERNEL_ASSIGN(out[i], req, value);
  }
};

// Calls OP::Map(i, args...) for every i below N, on the engine's threads where that pays.
template <typename OP>
struct Kernel<OP, cpu> {
  template <typename... Args>
  static bool Launch(Stream<cpu>* s, size_t N, Args... args) {
    constexpr int64_t grain = 8192;
    auto range = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) OP::Map(i, args...);
    };
    int64_t n = static_cast<int64_t>(N);
    if (s == nullptr || n <= grain) {  // a tensor need not have a stream
      range(0, n);
      return true;
    }
    rsnet::parallel_for(s->host, s->ctx, n, grain, range);
    return true;
  }
  // As Launch, which is not tuned.
  template <typename Tuned, typename DType, typename... Args>
  static bool LaunchTuned(Stream<cpu>* s, size_t N, Args... args) {
    return Launch(s, N, args...);
  }
};

#if defined(__CUDACC__)
template <typename OP, typename... Args>
__global__ void GenericKernel(int N, Args... args) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x) {
    OP::Map(i, args...);
  }
}
template <typename OP>
struct Kernel<OP, gpu> {
  template <typename... Args>
  static bool Launch(Stream<gpu>* s, int N, Args... args) {
    if (N == 0) return true;
    int blocks = std::min(65535, (N + 255) / 256);
    cudaStream_t stream = s == nullptr ? nullptr : static_cast<cudaStream_t>(s->stream);
    GenericKernel<OP, Args...><<<blocks, 256, 0, stream>>>(N, args...);
    if (cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
      throw rsnet::Failure(std::string("cannot launch a kernel: ") + cudaGetErrorString(error),
                           RSNET_INTERNAL);
    }
    return true;
  }
};
#endif

}  // namespace mxnet_op
// The tutorials write the namespace so, too.
namespace MXNet_op = mxnet_op;

// Every element as the request says.
template <bool is_integer = false, typename Value, typename xpu>
void Fill(mshadow::Stream<xpu>* s, const TBlob& blob, OpReqType request, Value value) {
  MSHADOW_TYPE_SWITCH_WITH_BOOL(blob.type_flag_, DType, {
    MXNET_ASSIGN_REQ_SWITCH(request, req, {
      mxnet_op::Kernel<mxnet_op::set_to<req>, xpu>::Launch(s, blob.Size(), blob.dptr<DType>(),
                                                           static_cast<DType>(value));
    });
  });
}

// FCompute of a function of elements of one array, and of two.
struct UnaryOp {
  template <typename xpu, typename OP>
  static void Compute(const NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                      const std::vector<OpReqType>& request, const std::vector<TBlob>& out) {
    MSHADOW_TYPE_SWITCH(out[0].type_flag_, DType, {
      MXNET_ASSIGN_REQ_SWITCH(request[0], req, {
        mxnet_op::Kernel<mxnet_op::op_with_req<OP, req>, xpu>::Launch(
            ctx.get_stream<xpu>(), out[0].Size(), out[0].dptr<DType>(), in[0].dptr<DType>());
      });
    });
  }
  template <typename xpu>
  static void IdentityCompute(const NodeAttrs& attrs, const OpContext& ctx,
                              const std::vector<TBlob>& in, const std::vector<OpReqType>& req,
                              const std::vector<TBlob>& out) {
    Compute<xpu, mshadow_op::identity>(attrs, ctx, in, req, out);
  }
};
struct ElemwiseBinaryOp {
  template <typename xpu, typename OP>
  static void Compute(const NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                      const std::vector<OpReqType>& request, const std::vector<TBlob>& out) {
    MSHADOW_TYPE_SWITCH(out[0].type_flag_, DType, {
      MXNET_ASSIGN_REQ_SWITCH(request[0], req, {
        mxnet_op::Kernel<mxnet_op::op_with_req<OP, req>, xpu>::Launch(
            ctx.get_stream<xpu>(), out[0].Size(), out[0].dptr<DType>(), in[0].dptr<DType>(),
            in[1].dptr<DType>());
      });
    });
  }
};
using BinaryOp = ElemwiseBinaryOp;
template <typename GRAD>
using unary_bwd = mxnet_op::backward_grad<GRAD>;

}  // namespace op
}  // namespace mxnet

#define RSNET_MX_ELEMWISE(name, n, ...)                                                    \
  NNVM_REGISTER_OP(name)                                                                   \
      .set_num_inputs(n)                                                                   \
      .set_num_outputs(1)                                                                  \
      .set_attr<nnvm::FListInputNames>(                                                    \
          "FListInputNames",                                                               \
          [](const ::nnvm::NodeAttrs&) { return std::vector<std::string>{__VA_ARGS__}; })  \
      .set_attr<nnvm::FInferShape>("FInferShape", ::mxnet::op::ElemwiseShape<n, 1>)        \
      .set_attr<nnvm::FInferType>("FInferType", ::mxnet::op::ElemwiseType<n, 1>)           \
      .set_attr<nnvm::FInplaceOption>("FInplaceOption", [](const ::nnvm::NodeAttrs&) {     \
        return std::vector<std::pair<int, int>>{{0, 0}};                                   \
      })
#define MXNET_OPERATOR_REGISTER_UNARY(name) RSNET_MX_ELEMWISE(name, 1, "data")
#define MXNET_OPERATOR_REGISTER_BINARY(name) RSNET_MX_ELEMWISE(name, 2, "lhs", "rhs")

#endif  // RSNET_MXNET_KERNEL_HPP
