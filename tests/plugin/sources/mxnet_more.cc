// Aliases of parameters, groups of operators, expressions over tensors, numbers of 64 bits, places
// of elements.
#include <rsnet/mxnet.h>

namespace mxnet {
namespace op {

struct MoreParam : public dmlc::Parameter<MoreParam> {
  float slope;
  uint64_t big;
  int size;
  DMLC_DECLARE_PARAMETER(MoreParam) {
    DMLC_DECLARE_FIELD(slope).set_default(2);
    DMLC_DECLARE_ALIAS(slope, alpha);
    DMLC_DECLARE_FIELD(big).set_default(18446744073709551615u).describe("Shown in errors.");
    DMLC_DECLARE_FIELD(size);
  }
};
DMLC_REGISTER_PARAMETER(MoreParam);

struct twice {
  template <typename DType>
  MSHADOW_XINLINE static DType Map(DType a) {
    return DType(2 * a);
  }
};
struct less_of {
  template <typename DType>
  MSHADOW_XINLINE static DType Map(DType a, DType b) {
    return a < b ? a : b;
  }
};

// y = min(2 x, slope + x / 2 - 3 x x) + size, in steps; refuses a `big` that is even.
void MoreForward(const nnvm::NodeAttrs& attrs, const OpContext& ctx, const std::vector<TBlob>& in,
                 const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  const MoreParam& param = nnvm::get<MoreParam>(attrs.parsed);
  CHECK_EQ(param.big % 2, 1u) << "big is " << param.big;
  Stream<cpu>* s = ctx.get_stream<cpu>();
  MSHADOW_REAL_TYPE_SWITCH(out[0].type_flag_, DType, {
    Tensor<cpu, 1, DType> x = in[0].FlatTo1D<cpu, DType>(s);
    Tensor<cpu, 1, DType> y = out[0].FlatTo1D<cpu, DType>(s);
    Tensor<cpu, 1, DType> z =
        ctx.requested[0].get_space_typed<cpu, 1, DType>(Shape1(x.size(0)), s);
    z = 0;
    z += x * x;
    z *= 3;
    Assign(y, req[0], F<less_of>(F<twice>(x), scalar<DType>(param.slope) + x / 2 - z));
    y += param.size;
  })
}

NNVM_REGISTER_OP_GROUP(MoreGroup)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>);

NNVM_REGISTER_OP(mx_more)
    .set_attr_parser(ParamParser<MoreParam>)
    .include("MoreGroup")
    .set_attr<FResourceRequest>(
        "FResourceRequest",
        [](const NodeAttrs&) { return std::vector<ResourceRequest>{ResourceRequest::kTempSpace}; })
    .set_attr<FCompute>("FCompute<cpu>", MoreForward)
    .add_arguments(MoreParam::__FIELDS__());

// Random numbers in expressions: noise times 1 where a random number is below x, and 0 elsewhere.
struct NoiseParam : public dmlc::Parameter<NoiseParam> {
  bool gaussian;
  DMLC_DECLARE_PARAMETER(NoiseParam) { DMLC_DECLARE_FIELD(gaussian).set_default(false); }
};
DMLC_REGISTER_PARAMETER(NoiseParam);
void Noise(const nnvm::NodeAttrs& attrs, const OpContext& ctx, const std::vector<TBlob>& in,
           const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  using namespace mshadow;
  using namespace mshadow::expr;
  Stream<cpu>* s = ctx.get_stream<cpu>();
  Tensor<cpu, 2> x = in[0].FlatTo2D<cpu, real_t>(s), y = out[0].FlatTo2D<cpu, real_t>(s);
  Random<cpu>* random = ctx.requested[0].get_random<cpu, real_t>(s);
  if (nnvm::get<NoiseParam>(attrs.parsed).gaussian) {
    Assign(y, req[0], random->gaussian(y.shape_));
  } else {
    Assign(y, req[0], F<mshadow_op::threshold>(random->uniform(y.shape_), x));
  }
}
NNVM_REGISTER_OP(mx_noise)
    .set_attr_parser(ParamParser<NoiseParam>)
    .include("MoreGroup")
    .set_attr<FResourceRequest>(
        "FResourceRequest",
        [](const NodeAttrs&) { return std::vector<ResourceRequest>{ResourceRequest::kRandom}; })
    .set_attr<FCompute>("FCompute<cpu>", Noise)
    .add_arguments(NoiseParam::__FIELDS__());

// The product of arrays of three axes, of which some are repeated. All ways to find an element have
// to agree.
struct product {
  template <typename DType>
  MSHADOW_XINLINE static void Map(index_t i, DType* y, const DType* a, const DType* b,
                                  mshadow::Shape<3> of, mshadow::Shape<3> sa,
                                  mshadow::Shape<3> sb) {
    using namespace mxnet_op;
    const mshadow::Shape<3> at = unravel(i, of), step_a = calc_stride(sa), step_b = calc_stride(sb);
    index_t ia = 0, ib = 0;
    mshadow::Shape<3> walked = {};
    for (index_t k = 0; k < i; ++k) inc(&walked, of, &ia, step_a, &ib, step_b);
    bool agree = walked == at && ia == ravel(at, sa) && ib == unravel_dot(i, of, step_b);
    y[i] = agree ? DType(a[ravel(at, sa)] * b[ravel(at, sb)]) : DType(-1);
  }
};
NNVM_REGISTER_OP(mx_product)
    .set_num_inputs(2)
    .set_attr<nnvm::FListInputNames>(
        "FListInputNames", [](const NodeAttrs&) { return std::vector<std::string>{"a", "b"}; })
    .set_attr<nnvm::FInferShape>(
        "FInferShape",
        [](const NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
          if (shape_is_none(in->at(0)) || shape_is_none(in->at(1))) return false;
          TShape of(3, 1);
          for (int i = 0; i < 3; ++i) of[i] = std::max(in->at(0)[i], in->at(1)[i]);
          SHAPE_ASSIGN_CHECK(*out, 0, of);
          return true;
        })
    .set_attr<FCompute>(
        "FCompute<cpu>", [](const NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                            const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
          MSHADOW_TYPE_SWITCH(out[0].type_flag_, DType, {
            mxnet_op::Kernel<product, cpu>::Launch(
                ctx.get_stream<cpu>(), out[0].Size(), out[0].dptr<DType>(), in[0].dptr<DType>(),
                in[1].dptr<DType>(), out[0].shape_.get<3>(), in[0].shape_.get<3>(),
                in[1].shape_.get<3>());
          });
        })
    // Not its gradient, but twice the one that arrives.
    .set_attr<nnvm::FGradient>("FGradient", [](const nnvm::NodePtr& n,
                                               const std::vector<nnvm::NodeEntry>& ograds) {
      std::vector<nnvm::NodeEntry> grads;
      for (int i = 0; i < 2; ++i) {
        grads.emplace_back(nnvm::MakeNode("_mul_scalar", n->attrs.name + std::to_string(i),
                                          {ograds[0]}, {{"scalar", "2"}}));
      }
      return grads;
    });

// Asks for temporary space of a shape, and uses none of it.
struct SpaceParam : public dmlc::Parameter<SpaceParam> {
  TShape shape;
  DMLC_DECLARE_PARAMETER(SpaceParam) { DMLC_DECLARE_FIELD(shape); }
};
DMLC_REGISTER_PARAMETER(SpaceParam);
void Space(const nnvm::NodeAttrs& attrs, const OpContext& ctx, const std::vector<TBlob>& in,
           const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  const SpaceParam& param = nnvm::get<SpaceParam>(attrs.parsed);
  ctx.requested[0].get_space_typed<cpu, 2, double>(param.shape.get<2>());
  UnaryOp::IdentityCompute<cpu>(attrs, ctx, in, req, out);
}
NNVM_REGISTER_OP(mx_space)
    .set_attr_parser(ParamParser<SpaceParam>)
    .include("MoreGroup")
    .set_attr<FResourceRequest>(
        "FResourceRequest",
        [](const NodeAttrs&) { return std::vector<ResourceRequest>{ResourceRequest::kTempSpace}; })
    .set_attr<FCompute>("FCompute<cpu>", Space)
    .add_arguments(SpaceParam::__FIELDS__());

NNVM_REGISTER_OP(mx_rows_softmax)
    .include("MoreGroup")
    .set_attr<FCompute>(
        "FCompute<cpu>", [](const NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                            const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
          mshadow::Stream<cpu>* s = ctx.get_stream<cpu>();
          MSHADOW_REAL_TYPE_SWITCH(out[0].type_flag_, DType, {
            mshadow::Softmax(out[0].FlatTo2D<cpu, DType>(s), in[0].FlatTo2D<cpu, DType>(s));
          });
        });

// Refuses elements below 0.
struct Refusing {
  MSHADOW_XINLINE static void Map(index_t i, float* y, const float* x) {
    if (x[i] < 0) throw rsnet::Failure("an element is below 0", RSNET_UNSUPPORTED);
    y[i] = x[i];
  }
};
NNVM_REGISTER_OP(mx_refusing)
    .include("MoreGroup")
    .set_attr<FCompute>(
        "FCompute<cpu>", [](const NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>& in,
                            const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
          mxnet_op::Kernel<Refusing, cpu>::Launch(ctx.get_stream<cpu>(), out[0].Size(),
                                                  out[0].dptr<float>(), in[0].dptr<float>());
        });

// An output of random numbers for each request, of which there are as many as `kinds` says, by
// default none.
struct DrawsParam : public dmlc::Parameter<DrawsParam> {
  int kinds;
  DMLC_DECLARE_PARAMETER(DrawsParam) { DMLC_DECLARE_FIELD(kinds).set_default(0); }
};
DMLC_REGISTER_PARAMETER(DrawsParam);
NNVM_REGISTER_OP(mx_draws)
    .set_attr_parser(ParamParser<DrawsParam>)
    .set_num_inputs(1)
    .set_num_outputs(2)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 2>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 2>)
    .set_attr<FResourceRequest>(
        "FResourceRequest",
        [](const NodeAttrs& attrs) {
          std::vector<ResourceRequest> all = {ResourceRequest::kRandom,
                                              ResourceRequest::kParallelRandom};
          all.resize(nnvm::get<DrawsParam>(attrs.parsed).kinds);
          return all;
        })
    .set_attr<FCompute>(
        "FCompute<cpu>", [](const NodeAttrs&, const OpContext& ctx, const std::vector<TBlob>&,
                            const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
          mshadow::Stream<cpu>* s = ctx.get_stream<cpu>();
          for (size_t i = 0; i < 2; ++i) {
            mshadow::Tensor<cpu, 1, float> y = out[i].get<cpu, 1, float>(s);
            y = 0;
            if (i >= ctx.requested.size()) continue;
            ctx.requested[i].get_random<cpu, float>(s)->SampleUniform(&y);
          }
        })
    .add_arguments(DrawsParam::__FIELDS__());

}  // namespace op
}  // namespace mxnet
