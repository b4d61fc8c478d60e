// NNVM_REGISTER_OP and the attributes of operators. See rsnet/mxnet.h.
#ifndef RSNET_MXNET_OP_HPP
#define RSNET_MXNET_OP_HPP

#include <rsnet/mxnet/functors.hpp>
#include <rsnet/mxnet/param.hpp>
#include <rsnet/mxnet/resource.hpp>

#include <set>

namespace nnvm {

class Op;
struct Node;
using NodePtr = std::shared_ptr<Node>;
using ObjectPtr = NodePtr;

// The parameters of a node.
struct NodeAttrs {
  const Op* op = nullptr;
  std::string name;
  std::unordered_map<std::string, std::string> dict;
  dmlc::any parsed;
};

template <typename T>
const T& get(const dmlc::any& value) {
  const T* found = std::any_cast<T>(&value);
  if (found == nullptr)
    throw rsnet::Failure("the parameters were parsed as another struct, or not");
  return *found;
}

// A value in a gradient: output `index` of a node, or a value of the forward node.
struct NodeEntry {
  NodeEntry() = default;
  explicit NodeEntry(NodePtr node) : node(std::move(node)) {}
  NodeEntry(NodePtr node, uint32_t index, uint32_t version, int32_t source = -1)
      : node(std::move(node)), index(index), version(version), source(source) {}
  NodePtr node;
  uint32_t index = 0;
  uint32_t version = 0;
  int32_t source = -1;  // RSNET_OUT_GRAD, RSNET_IN_DATA, RSNET_OUT_DATA: of the forward node
};

struct Node {
  NodeAttrs attrs;
  std::vector<NodeEntry> inputs;
  std::vector<NodePtr> control_deps;
  const Op* op() const { return attrs.op; }
  uint32_t outputs = 1;  // of the forward node, in FGradient: all of them, hidden ones too
  uint32_t num_inputs() const { return static_cast<uint32_t>(inputs.size()); }
  uint32_t num_outputs() const { return outputs; }
  static NodePtr Create() { return std::make_shared<Node>(); }
};

using FListInputNames = std::function<std::vector<std::string>(const NodeAttrs&)>;
using FListOutputNames = FListInputNames;
using FNumVisibleOutputs = std::function<uint32_t(const NodeAttrs&)>;
using FMutateInputs = std::function<std::vector<uint32_t>(const NodeAttrs&)>;
using FIgnoreInputs = FMutateInputs;
using FInferShape =
    std::function<bool(const NodeAttrs&, std::vector<TShape>*, std::vector<TShape>*)>;
using FInferType = std::function<bool(const NodeAttrs&, std::vector<int>*, std::vector<int>*)>;
using FInplaceOption = std::function<std::vector<std::pair<int, int>>(const NodeAttrs&)>;
using FInplaceIdentity = std::function<std::vector<bool>(const NodeAttrs&)>;
using FGradient =
    std::function<std::vector<NodeEntry>(const NodePtr&, const std::vector<NodeEntry>&)>;
using TIsBackward = bool;
using FSetInputVarAttrOnCompose = std::function<void(const NodeAttrs&, ObjectPtr, int)>;

constexpr uint32_t kVarg = 0xffffffffu;

// The parser that fills a parameter struct P.
template <typename P>
struct ParamParserOf {};

// An operator as it is being registered.
class Op {
 public:
  std::string name;
  std::string description;
  std::vector<std::string> aliases;
  std::vector<rsnet::ArgText> arguments;  // inputs that are documented
  std::vector<rsnet::AttrText> fields;
  std::vector<rsnet::AttrText> documented;  // parameters of add_argument
  bool omits_none = false;                  // leaves parameters out of the dict that are not given
  std::function<void(NodeAttrs*)> attr_parser;
  uint32_t num_inputs = 1, num_outputs = 1;
  std::function<uint32_t(const NodeAttrs&)> get_num_inputs, get_num_outputs;
  // A value, and how strongly it is meant.
  struct Attribute {
    dmlc::any value;
    int level;
  };
  std::map<std::string, Attribute> attrs;
  std::vector<std::string> groups;
  bool registered = false;
  std::string problem;  // what is wrong with its registration, if anything

  Op& describe(const std::string& text) {
    description = text;
    return *this;
  }
  Op& add_alias(const std::string& alias) {
    aliases.push_back(alias);
    return *this;
  }
  Op& set_num_inputs(uint32_t n) {
    num_inputs = n;
    return *this;
  }
  Op& set_num_inputs(std::function<uint32_t(const NodeAttrs&)> f) {
    get_num_inputs = std::move(f);
    return *this;
  }
  Op& set_num_outputs(uint32_t n) {
    num_outputs = n;
    return *this;
  }
  Op& set_num_outputs(std::function<uint32_t(const NodeAttrs&)> f) {
    get_num_outputs = std::move(f);
    return *this;
  }
  template <typename P>
  Op& set_attr_parser(const ParamParserOf<P>&) {
    add_fields(P::__FIELDS__());
    attr_parser = [](NodeAttrs* attrs) {
      P param;
      param.Init(attrs->dict);
      attrs->parsed = std::move(param);
    };
    return *this;
  }
  Op& set_attr_parser(std::function<void(NodeAttrs*)> f) {
    attr_parser = std::move(f);
    return *this;
  }
  // Of two values of an attribute that of the higher level counts.
  template <typename T>
  Op& set_attr(const std::string& key, const T& value, int plevel = 10) {
    auto [at, is_new] = attrs.try_emplace(key, Attribute{value, plevel});
    if (is_new) return *this;
    if (at->second.level < plevel) {
      at->second = {value, plevel};
    } else if (at->second.level == plevel && problem.empty()) {
      problem = "invalid plevel " + std::to_string(plevel) + " of attribute '" + key +
                "', which is set with it already: expected a higher one";
    }
    return *this;
  }
  Op& add_argument(const std::string& argument, const std::string& type, const std::string& doc) {
    if (!rsnet::add_array(&arguments, argument, type, doc)) {
      rsnet::AttrText text;
      bool real = type.rfind("float", 0) == 0 || type.rfind("double", 0) == 0;
      bool whole = type.rfind("int", 0) == 0 || type.rfind("long", 0) == 0;
      text.kind = real ? RSNET_F64 : whole ? RSNET_I64 : RSNET_STR;
      text.name = argument;
      text.doc = doc;
      text.has_default = type.find("optional") != std::string::npos;
      documented.push_back(text);
    }
    return *this;
  }
  Op& add_arguments(const dmlc::parameter::Fields& all) {
    add_fields(all);
    return *this;
  }
  // Where no parameters are declared: those of the structs that a parser of the operator's own
  // fills, or else those that add_argument describes.
  void learn_fields() {
    if (!fields.empty()) return;
    NodeAttrs attrs;
    attrs.op = this;
    dmlc::parameter::Filled filled;
    try {
      if (attr_parser) attr_parser(&attrs);
    } catch (...) {  // what must be given is not
    }
    for (const dmlc::parameter::Fields* read : filled.fields) add_fields(*read);
    if (!fields.empty()) return;
    omits_none = true;
    for (rsnet::AttrText text : documented) {
      if (text.has_default || !attr_parser) {
        text.has_default = true;
        text.dflt = "None";
        text.flags = RSNET_MAY_BE_NONE;
      }
      fields.push_back(text);
    }
  }
  Op& set_support_level(int) { return *this; }
  // Takes over what a group sets, unless the operator sets it at the same level or a higher one.
  Op& include(const std::string& group) {
    groups.push_back(group);
    return *this;
  }

  template <typename T>
  const T* attr(const std::string& key) const {
    const Attribute* found = Find(key);
    for (const std::string& group : groups) {
      const Attribute* other = Group(group).Find(key);
      if (other != nullptr && (found == nullptr || other->level > found->level)) found = other;
    }
    if (found == nullptr) return nullptr;
    const T* value = std::any_cast<T>(&found->value);
    if (value == nullptr) {
      throw rsnet::Failure("operator '" + name + "': attribute '" + key +
                           "' is of another type than set_attr<...> says for it");
    }
    return value;
  }

  // The operator of this name, which may be one of rsnet's.
  static const Op* Get(const std::string& name) { return &Entry(name, false); }
  RSNET_LOCAL static Op& Entry(const std::string& name, bool registers);
  // Names that MXNET_REGISTER_OP_PROPERTY registers: NNVM_REGISTER_OP adds to those.
  RSNET_LOCAL static std::set<std::string>& Properties() {
    static std::set<std::string> all;
    return all;
  }
  // A group of operators, which has attributes only.
  RSNET_LOCAL static Op& Group(const std::string& name, bool registers = false) {
    static std::map<std::string, std::unique_ptr<Op>> all;
    std::unique_ptr<Op>& group = all[name];
    if (group == nullptr) group = std::make_unique<Op>();
    if (registers) group->registered = true;
    return *group;
  }

 private:
  const Attribute* Find(const std::string& key) const {
    auto found = attrs.find(key);
    return found == attrs.end() ? nullptr : &found->second;
  }
  void add_fields(const dmlc::parameter::Fields& all) {
    for (const auto& field : all) {
      bool known = false;
      for (const auto& f : fields) known = known || f.name == field->attr.name;
      if (!known) fields.push_back(field->attr);
    }
  }
};

// The first output of a new node.
inline NodeEntry MakeNode(const char* op_name, const std::string& name,
                          const std::vector<NodeEntry>& inputs = {},
                          const std::unordered_map<std::string, std::string>& dict = {}) {
  NodePtr node = Node::Create();
  node->attrs.op = Op::Get(op_name);
  node->attrs.name = name;
  node->attrs.dict = dict;
  node->inputs = inputs;
  return NodeEntry(node);
}

}  // namespace nnvm

namespace dmlc {
using nnvm::get;
}  // namespace dmlc

namespace mxnet {

using nnvm::NodeAttrs;

struct RunContext {
  Context ctx;
  template <typename xpu>
  mshadow::Stream<xpu>* get_stream() const {
    return static_cast<mshadow::Stream<xpu>*>(stream);
  }
  void* stream = nullptr;
};

// The circumstances of a call.
class OpContext {
 public:
  OpContext(const rsnet_args* args, const std::vector<ResourceRequest>& requests, bool is_async)
      : is_train(args->flags & RSNET_IS_TRAIN),
        need_grad(args->flags & RSNET_NEEDS_GRAD),
        async_on_complete(is_async),
        stream_{args->host, args->ctx, args->stream} {
    run_ctx.ctx = DeviceOf(args->device);
    run_ctx.stream = &stream_;
    if (requests.empty()) return;
    auto used = std::make_shared<uint64_t>(0);
    for (ResourceRequest r : requests) requested.emplace_back(r, args->host, args->ctx, used);
  }
  template <typename xpu>
  mshadow::Stream<xpu>* get_stream() const {
    return reinterpret_cast<mshadow::Stream<xpu>*>(&stream_);
  }
  OpContext(const OpContext&) = delete;  // `run_ctx` refers to it
  OpContext& operator=(const OpContext&) = delete;
  bool is_train;
  bool need_grad;
  OnComplete async_on_complete;
  RunContext run_ctx;
  Requested requested;

 private:
  mutable mshadow::Stream<cpu> stream_;
};

using FCompute =
    std::function<void(const NodeAttrs&, const OpContext&, const std::vector<TBlob>&,
                       const std::vector<OpReqType>&, const std::vector<TBlob>&)>;
using FResourceRequest = std::function<std::vector<ResourceRequest>(const NodeAttrs&)>;
using nnvm::FInferShape;
using nnvm::FInferType;

// Of every type but kSync a call may take long (RSNET_LONG).
enum ExecType { kSync, kAsync, kLocal, kCrossDeviceCopy, kSubgraphExec };
using FExecType = std::function<ExecType(const NodeAttrs&)>;

// Attributes that sources set and rsnet has no use for: all arrays are dense, and what is
// deterministic follows from the resources.
enum class DispatchMode { kUndefined = -1, kFCompute, kFComputeEx, kFComputeFallback, kVariable };
using FInferStorageType = std::function<bool(const NodeAttrs&, int, DispatchMode*,
                                             std::vector<int>*, std::vector<int>*)>;
using THasDeterministicOutput = bool;

// What a stateful operator keeps.
class OpStatePtr {
 public:
  template <typename T, typename... Args>
  static OpStatePtr Create(Args&&... args) {
    OpStatePtr state;
    state.held_ = std::make_shared<T>(std::forward<Args>(args)...);
    return state;
  }
  template <typename T>
  T& get_state() const {
    return *static_cast<T*>(held_.get());
  }

 private:
  std::shared_ptr<void> held_;
};
using FCreateOpState = std::function<OpStatePtr(const NodeAttrs&, Context,
                                                const std::vector<TShape>&, const std::vector<int>&)>;
using FStatefulCompute =
    std::function<void(const OpStatePtr&, const OpContext&, const std::vector<TBlob>&,
                       const std::vector<OpReqType>&, const std::vector<TBlob>&)>;

namespace op {

using nnvm::NodeAttrs;
template <typename P>
RSNET_LOCAL inline constexpr nnvm::ParamParserOf<P> ParamParser{};

// ---- Inference that many operators share -------------------------------------------------------

template <int n_in = -1, int n_out = -1>
bool ElemwiseShape(const NodeAttrs&, std::vector<TShape>* in, std::vector<TShape>* out) {
  TShape common;
  for (auto* side : {in, out}) {
    for (size_t i = 0; i < side->size(); ++i) {
      const TShape& own = (*side)[i];
      if (shape_assign(&common, own)) continue;
      throw Contradiction("shape", side, i, own.Text(), common.Text());
    }
  }
  for (auto* side : {in, out}) {
    for (TShape& shape : *side) shape = common;
  }
  return shape_is_known(common);
}
template <int n_in = -1, int n_out = -1>
bool ElemwiseType(const NodeAttrs&, std::vector<int>* in, std::vector<int>* out) {
  int common = -1;
  for (auto* side : {in, out}) {
    for (size_t i = 0; i < side->size(); ++i) {
      const int own = (*side)[i];
      if (type_assign(&common, own)) continue;
      throw Contradiction("dtype", side, i, TextOfType(own), TextOfType(common));
    }
  }
  for (auto* side : {in, out}) std::fill(side->begin(), side->end(), common);
  return common != -1;
}

// ---- Gradients ---------------------------------------------------------------------------------

// The gradient of the output is that of every input.
struct CloneGradient {
  const char* op_name;
  std::vector<nnvm::NodeEntry> operator()(const nnvm::NodePtr& n,
                                          const std::vector<nnvm::NodeEntry>& ograds) const {
    return std::vector<nnvm::NodeEntry>(n->num_inputs(), ograds.at(0));
  }
};

inline nnvm::NodePtr MakeNode(const char* op_name, const std::string& name,
                              const std::vector<nnvm::NodeEntry>* inputs,
                              const std::unordered_map<std::string, std::string>* dict,
                              const nnvm::NodePtr* forward = nullptr) {
  (void)forward;
  return nnvm::MakeNode(op_name, name, inputs == nullptr ? std::vector<nnvm::NodeEntry>() : *inputs,
                        dict == nullptr ? std::unordered_map<std::string, std::string>() : *dict)
      .node;
}

// The gradients of all inputs of `n`, computed by one backward operator.
inline std::vector<nnvm::NodeEntry> MakeGradNode(
    const char* op_name, const nnvm::NodePtr& n, std::vector<nnvm::NodeEntry> inputs,
    const std::unordered_map<std::string, std::string>& dict) {
  nnvm::NodePtr node = MakeNode(op_name, n->attrs.name + "_backward", &inputs, &dict, &n);
  std::vector<nnvm::NodeEntry> out;
  for (uint32_t i = 0; i < n->num_inputs(); ++i) out.push_back({node, i, 0, -1});
  return out;
}
inline std::vector<nnvm::NodeEntry> MakeNonlossGradNode(
    const char* op_name, const nnvm::NodePtr& n, const std::vector<nnvm::NodeEntry>& ograds,
    const std::vector<nnvm::NodeEntry>& inputs,
    const std::unordered_map<std::string, std::string>& dict) {
  std::vector<nnvm::NodeEntry> all = ograds;
  all.insert(all.end(), inputs.begin(), inputs.end());
  return MakeGradNode(op_name, n, all, dict);
}
inline std::vector<nnvm::NodeEntry> MakeZeroGradNodes(const nnvm::NodePtr& n,
                                                      const std::vector<nnvm::NodeEntry>&) {
  std::vector<nnvm::NodeEntry> out;
  for (const nnvm::NodeEntry& input : n->inputs) {
    std::vector<nnvm::NodeEntry> one = {input};
    out.push_back({MakeNode("zeros_like", "", &one, nullptr), 0, 0, -1});
  }
  return out;
}

// Backward operator `op_name` over the output gradients and, as wanted, inputs and outputs.
template <bool in, bool out>
struct ElemwiseGrad {
  const char* op_name;
  // What the backward operator reads: add(source, number).
  template <typename Add>
  static void Read(uint32_t n_in, uint32_t n_out, const Add& add) {
    for (uint32_t i = 0; i < n_out; ++i) add(RSNET_OUT_GRAD, i);
    for (uint32_t i = 0; in && i < n_in; ++i) add(RSNET_IN_DATA, i);
    for (uint32_t i = 0; out && i < n_out; ++i) add(RSNET_OUT_DATA, i);
  }
  std::vector<nnvm::NodeEntry> operator()(const nnvm::NodePtr& n,
                                          const std::vector<nnvm::NodeEntry>& ograds) const {
    std::vector<nnvm::NodeEntry> read;
    Read(n->num_inputs(), static_cast<uint32_t>(ograds.size()), [&](int32_t source, uint32_t i) {
      read.push_back(source == RSNET_OUT_GRAD  ? ograds[i]
                     : source == RSNET_IN_DATA ? n->inputs[i]
                                               : nnvm::NodeEntry{n, i, 0, source});
    });
    return MakeGradNode(op_name, n, read, n->attrs.dict);
  }
};
using ElemwiseGradUseNone = ElemwiseGrad<false, false>;
using ElemwiseGradUseIn = ElemwiseGrad<true, false>;
using ElemwiseGradUseOut = ElemwiseGrad<false, true>;
using ElemwiseGradUseInOut = ElemwiseGrad<true, true>;

}  // namespace op
}  // namespace mxnet

#endif  // RSNET_MXNET_OP_HPP
