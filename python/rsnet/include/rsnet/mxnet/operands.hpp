// What crosses plugin.h in calls of NNVM_REGISTER_OP's operators: parameters, shapes, dtypes and
// arrays.
#ifndef RSNET_MXNET_OPERANDS_HPP
#define RSNET_MXNET_OPERANDS_HPP

#include <rsnet/mxnet/blob.hpp>
#include <rsnet/mxnet/param.hpp>

namespace mxnet {

// The value of a parameter as text.
inline std::string TextOf(const rsnet_value& value) {
  switch (value.kind) {
    case RSNET_NONE: return "None";
    case RSNET_BOOL: return rsnet::to_text(value.v.i != 0);
    case RSNET_F32: return rsnet::to_text(static_cast<float>(value.v.f));
    case RSNET_F64: return rsnet::to_text(value.v.f);
    case RSNET_STR:
    case RSNET_ENUM: return std::string(value.v.s, value.n);
    case RSNET_SHAPE:
    case RSNET_LIST_I32:
    case RSNET_LIST_I64:
      return rsnet::list_text(std::vector<int64_t>(value.v.is, value.v.is + value.n));
    case RSNET_LIST_MAYBE_I64: {
      std::vector<std::optional<int64_t>> items;
      for (int32_t i = 0; i < value.n; ++i) {
        bool is_none = value.v.is[i] == RSNET_NO_NUMBER;
        items.push_back(is_none ? std::nullopt : std::optional<int64_t>(value.v.is[i]));
      }
      return rsnet::list_text(items);
    }
    case RSNET_LIST_F32:
    case RSNET_LIST_F64:
      return rsnet::list_text(std::vector<double>(value.v.fs, value.v.fs + value.n));
    case RSNET_U64: return std::to_string(value.v.u);
    default: return std::to_string(value.v.i);
  }
}

// All parameters of a call as texts.
inline dmlc::Kwargs ReadParams(const std::vector<rsnet::AttrText>& fields, const rsnet_host* host,
                               rsnet_ctx* ctx) {
  dmlc::Kwargs out;
  for (size_t i = 0; i < fields.size(); ++i) {
    const rsnet_value* value = host->attr(ctx, static_cast<int32_t>(i));
    if (value == nullptr) throw rsnet::Failure("");
    out.emplace_back(fields[i].name, TextOf(*value));
  }
  return out;
}

// The shapes and dtypes of a side while they are inferred.
struct Arrays {
  std::vector<TShape> shapes;
  std::vector<int> types;
  bool known = true;   // are all shapes known?
  bool empty = false;  // has one an axis of no elements?
  Context device;      // where they are

  Arrays(const rsnet_host* host, rsnet_ctx* ctx, int32_t side) {
    int32_t n = host->n_arrays(ctx, side);
    for (int32_t i = 0; i < n; ++i) {
      const rsnet_tensor* t = host->tensor(ctx, side, i);
      if (t == nullptr) throw rsnet::Failure("");
      device = DeviceOf(t->device);
      TShape shape;
      if (t->ndim >= 0) shape = TShape(t->shape, t->shape + t->ndim);
      for (dim_t& d : shape) {
        empty = empty || d == 0;
        known = known && d >= 0;
        if (d < 0) d = 0;
      }
      known = known && t->ndim >= 0;
      shapes.push_back(shape);
      types.push_back(FlagOf(t->dtype));
    }
  }
};

// Tells rsnet the shapes of a side. An extent of 0 is unknown, unless all inputs were known and one
// of them was empty.
inline void LearnShapes(const rsnet_host* host, rsnet_ctx* ctx, int32_t side,
                        const std::vector<TShape>& shapes, const Arrays& inputs) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!ndim_is_known(shapes[i])) continue;
    std::vector<int64_t> dims(shapes[i].begin(), shapes[i].end());
    if (!(inputs.known && inputs.empty)) std::replace(dims.begin(), dims.end(), int64_t(0), int64_t(-1));
    rsnet::check(host->set_shape(ctx, side, static_cast<int32_t>(i),
                                 static_cast<int32_t>(dims.size()), dims.data()));
  }
}
inline void LearnTypes(const rsnet_host* host, rsnet_ctx* ctx, int32_t side,
                       const std::vector<int>& types) {
  for (size_t i = 0; i < types.size(); ++i) {
    rsnet::check(host->set_dtype(ctx, side, static_cast<int32_t>(i), TypeOf(types[i])));
  }
}

// Asks rule(&inputs, &outputs), which returns nothing, for dtypes. Many rules begin with
// CHECK_NE(dtype, -1): one that refuses dtypes of which some are unknown has no answer yet, unless
// it refuses them in the same words when they are known.
template <typename Rule>
void AskForTypes(std::vector<int>* in, std::vector<int>* out, Rule rule) {
  const std::vector<int> known = *in, known_out = *out;
  auto refusal = [&]() -> std::optional<rsnet::Failure> {
    try {
      rule(in, out);
      return std::nullopt;
    } catch (const rsnet::Failure& e) {
      return e;
    }
  };
  const std::optional<rsnet::Failure> first = refusal();
  if (!first) return;
  if (std::find(known.begin(), known.end(), -1) != known.end()) {
    auto some = std::find_if(known.begin(), known.end(), [](int t) { return t != -1; });
    *in = known;
    *out = known_out;
    std::replace(in->begin(), in->end(), -1, some == known.end() ? mshadow::kFloat32 : *some);
    const std::optional<rsnet::Failure> second = refusal();
    if (!second || std::strcmp(second->what(), first->what()) != 0) throw rsnet::Unknown();
  }
  throw *first;
}

// Lists of operands, of which each kind of call has some.
struct OperandLists {
  std::vector<TBlob> out_grad, in_data, out_data, in_grad, states;
  std::vector<OpReqType> req;  // of the outputs
};

// The operands of a call, in lists whose memory is used again.
class Operands {
 public:
  explicit Operands(const rsnet_args* args) : args_(args) { lists_->req.clear(); }
  OperandLists* operator->() const { return &*lists_; }

  // Fills a list with inputs, or with outputs, whose requests are added to `req`.
  void SetInputs(std::vector<TBlob>* list, size_t begin, size_t end) const {
    list->clear();
    for (size_t i = begin; i < end; ++i) list->emplace_back(args_->in[i]);
  }
  void SetOutputs(std::vector<TBlob>* list, size_t begin, size_t end) const {
    list->clear();
    for (size_t i = begin; i < end; ++i) {
      list->emplace_back(args_->out[i]);
      lists_->req.push_back(static_cast<OpReqType>(args_->req[i]));
    }
  }
  // Fills a list with the inputs at these places; those at -1 are absent.
  void SetInputs(std::vector<TBlob>* list, const std::vector<int>& places) const {
    list->clear();
    for (int at : places) list->push_back(at < 0 ? TBlob() : TBlob(args_->in[at]));
  }

 private:
  const rsnet_args* args_;
  rsnet::Reused<OperandLists> lists_;
};

}  // namespace mxnet

#endif  // RSNET_MXNET_OPERANDS_HPP
