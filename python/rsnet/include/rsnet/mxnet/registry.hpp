// Hands operators of NNVM_REGISTER_OP over to rsnet: their attributes as callbacks of plugin.h.
#ifndef RSNET_MXNET_REGISTRY_HPP
#define RSNET_MXNET_REGISTRY_HPP

#include <rsnet/mxnet/op.hpp>
#include <rsnet/mxnet/operands.hpp>

namespace mxnet {

// An operator of NNVM_REGISTER_OP on its way to rsnet.
class NnvmOp {
 public:
  explicit NnvmOp(nnvm::Op* op) : op_(op) {}

  rsnet_status Register(const rsnet_host* host, rsnet_registry* registry) {
    if (nnvm::Op::Properties().count(op_->name) > 0) return RSNET_OK;  // it takes over what is here
    op_->learn_fields();
    if (rsnet_status status = RegisterOp(host, registry)) return status;
    if (rsnet_status status = RegisterKernels(host, registry)) return status;
    return RegisterGradient(host, registry);
  }

 private:
  template <typename T>
  const T* Attr(const char* key) const {
    return op_->attr<T>(key);
  }
  bool IsTrue(const char* key) const {
    const bool* value = Attr<bool>(key);
    return value != nullptr && *value;
  }

  // A function that fails without parameters may return any type with them.
  bool IsLong() const {
    const FExecType* type = Attr<FExecType>("FExecType");
    NodeAttrs attrs;
    attrs.op = op_;
    try {
      return type != nullptr && (*type)(attrs) != ExecType::kSync;
    } catch (...) {
      return true;
    }
  }

  rsnet_status RegisterOp(const rsnet_host* host, rsnet_registry* registry) {
    CheckAttributes(*op_);
    for (const std::string& group : op_->groups) {
      CheckAttributes(nnvm::Op::Group(group));
      if (nnvm::Op::Group(group).registered) continue;
      throw rsnet::Failure("operator '" + op_->name + "': include(\"" + group +
                           "\"): there is no NNVM_REGISTER_OP_GROUP of this name");
    }
    bool backward = IsTrue("TIsBackward");
    std::vector<rsnet::ArgText> in = Arguments(), out = Names(op_->num_outputs, "output");
    std::vector<rsnet_arg> inputs = rsnet::arg_list(in), outputs = rsnet::arg_list(out);
    std::vector<const char*> aliases;
    for (const std::string& alias : op_->aliases) aliases.push_back(alias.c_str());
    rsnet::AttrList attrs(op_->fields);
    rsnet_op op = {};
    op.struct_size = sizeof op;
    op.flags = (backward ? RSNET_BACKWARD : 0) | (IsLong() ? RSNET_LONG : 0);
    op.name = op_->name.c_str();
    op.doc = op_->description.c_str();
    op.aliases = aliases.data();
    op.n_aliases = static_cast<int32_t>(aliases.size());
    op.inputs = inputs.data();
    op.n_inputs = static_cast<int32_t>(inputs.size());
    op.outputs = outputs.data();
    op.n_outputs = static_cast<int32_t>(outputs.size());
    op.attrs = attrs.data();
    op.n_attrs = attrs.size();
    if (const auto* count = Attr<std::string>("key_var_num_args")) op.count_attr = count->c_str();
    op.user = this;
    op.parse = Parse;
    op.free_parsed = [](void* made) { delete static_cast<NodeAttrs*>(made); };
    if (!backward || HasLists()) op.names = ListNames;
    if (Attr<nnvm::FInferShape>("FInferShape")) op.infer_shape = InferShape;
    op.infer_type = InferType;
    if (Attr<nnvm::FInplaceOption>("FInplaceOption")) op.inplace = Inplace;
    if (Attr<FResourceRequest>("FResourceRequest")) op.resources = Resources;
    if (Attr<FCreateOpState>("FCreateOpState")) {
      op.flags |= RSNET_NOT_DETERMINISTIC;
      op.create_state = CreateState;
      op.destroy_state = [](void* made) { delete static_cast<OpStatePtr*>(made); };
    }
    return host->register_op(registry, &op);
  }

  // Raises what is wrong with attributes of the operator, or of a group that it includes.
  void CheckAttributes(const nnvm::Op& from) const {
    if (!from.problem.empty()) {
      throw rsnet::Failure("operator '" + op_->name + "': " + from.problem);
    }
  }
  bool HasLists() const {
    return op_->get_num_inputs || Attr<nnvm::FListInputNames>("FListInputNames") ||
           Attr<nnvm::FMutateInputs>("FMutateInputs");
  }
  static std::vector<rsnet::ArgText> Names(uint32_t n, const std::string& stem) {
    constexpr uint32_t kMost = 65535;
    if (n > kMost && n != nnvm::kVarg) {
      throw rsnet::Failure("invalid number of arrays " + std::to_string(n) +
                           ", as the parameters say: expected 0 to " + std::to_string(kMost));
    }
    std::vector<rsnet::ArgText> out;
    for (uint32_t i = 0; i < n && n != nnvm::kVarg; ++i) {
      bool one = n == 1 && stem != "arg";
      out.push_back({one ? stem : stem + std::to_string(i), "", 1, 0});
    }
    return out;
  }
  // What the defaults of the parameters say; nothing if a parameter has none.
  std::optional<NodeAttrs> Defaults() const {
    NodeAttrs attrs;
    attrs.op = op_;
    for (const rsnet::AttrText& field : op_->fields) {
      if (!field.has_default) return {};
      if (!op_->omits_none) attrs.dict[field.name] = field.dflt;
    }
    if (op_->attr_parser) op_->attr_parser(&attrs);
    return attrs;
  }
  std::vector<std::string> DefaultNames() const {
    const auto* list = Attr<nnvm::FListInputNames>("FListInputNames");
    std::optional<NodeAttrs> attrs = list == nullptr ? std::nullopt : Defaults();
    return attrs ? (*list)(*attrs) : std::vector<std::string>();
  }
  // The inputs as they are registered: before there is a call.
  std::vector<rsnet::ArgText> Arguments() const {
    if (!op_->arguments.empty()) return op_->arguments;
    if (std::vector<std::string> listed = DefaultNames(); listed.size() == op_->num_inputs) {
      std::vector<rsnet::ArgText> out;
      for (const std::string& name : listed) out.push_back({name, "", 1, 0});
      return out;
    }
    return InputsWithoutNames(op_->num_inputs);
  }
  static std::vector<rsnet::ArgText> InputsWithoutNames(uint32_t n) {
    return Names(n, n == 1 ? "data" : "arg");
  }
  uint32_t NumInputs(const NodeAttrs& attrs) const {
    return op_->get_num_inputs ? op_->get_num_inputs(attrs) : op_->num_inputs;
  }

  rsnet_status RegisterKernels(const rsnet_host* host, rsnet_registry* registry) {
    for (int32_t device : {RSNET_CPU, RSNET_GPU}) {
      std::string tag = device == RSNET_CPU ? "<cpu>" : "<gpu>";
      const auto* plain = Attr<FCompute>(("FCompute" + tag).c_str());
      const auto* stateful = Attr<FStatefulCompute>(("FStatefulCompute" + tag).c_str());
      if (plain == nullptr && stateful == nullptr) continue;
      if (stateful == nullptr ? !*plain : !*stateful) {
        throw rsnet::Failure("operator '" + op_->name + "': its function for " + tag + " is null");
      }
      auto* call = rsnet::keep(KernelCall{this, plain, stateful, Attr<FExecType>("FExecType"),
                                           Attr<FResourceRequest>("FResourceRequest"),
                                           IsTrue("TIsBackward")});
      rsnet_match match = {RSNET_M_DEVICE, RSNET_EQ, nullptr, 0, {0, 0, 0}, device, nullptr};
      rsnet_kernel kernel = {};
      kernel.struct_size = sizeof kernel;
      kernel.flags = IsTrue("TAccumulates") ? RSNET_ACCUMULATES : 0;
      kernel.op = op_->name.c_str();
      kernel.name = device == RSNET_CPU ? "cpu" : "gpu";
      kernel.match = &match;
      kernel.n_match = 1;
      kernel.user = call;
      kernel.compute = Compute;
      if (rsnet_status status = host->register_kernel(registry, &kernel)) return status;
    }
    return RSNET_OK;
  }

  rsnet_status RegisterGradient(const rsnet_host* host, rsnet_registry* registry) {
    const auto* gradient = Attr<nnvm::FGradient>("FGradient");
    if (gradient == nullptr) return RSNET_OK;
    rsnet_grad grad = {};
    grad.struct_size = sizeof grad;
    grad.op = op_->name.c_str();
    grad.user = this;
    if (IsStandard<false, false>(&grad) || IsStandard<true, false>(&grad) ||
        IsStandard<false, true>(&grad) || IsStandard<true, true>(&grad)) {
      return host->register_grad(registry, &grad);
    }
    grad.kind = RSNET_GRAD_RULE;
    grad.rule = Rule;
    return host->register_grad(registry, &grad);
  }
  // One backward operator computes it, which rsnet need not see as nodes.
  template <bool in, bool out>
  bool IsStandard(rsnet_grad* grad) {
    const auto* f = Attr<nnvm::FGradient>("FGradient")->target<op::ElemwiseGrad<in, out>>();
    if (f == nullptr) return false;
    grad->kind = RSNET_GRAD_BACKWARD;
    grad->backward = f->op_name;
    grad->deps = Deps<in, out>;
    return true;
  }

  // ---- Callbacks -------------------------------------------------------------------------------

  static NnvmOp* Self(void* user) { return static_cast<NnvmOp*>(user); }
  static const NodeAttrs& Parsed(const rsnet_host* host, rsnet_ctx* ctx) {
    return *static_cast<const NodeAttrs*>(host->parsed(ctx));
  }

  static rsnet_status Parse(const rsnet_host* host, rsnet_ctx* ctx, void* user, void** made) {
    return rsnet::protect(host, ctx, [&] {
      nnvm::Op* op = Self(user)->op_;
      auto attrs = std::make_unique<NodeAttrs>();
      attrs->op = op;
      for (auto& [name, text] : ReadParams(op->fields, host, ctx)) {
        if (!op->omits_none || text != "None") attrs->dict[name] = text;
      }
      if (op->attr_parser) op->attr_parser(attrs.get());
      *made = attrs.release();
    });
  }

  std::vector<std::string> InputNames(const NodeAttrs& attrs) const {
    if (const auto* f = Attr<nnvm::FListInputNames>("FListInputNames")) return (*f)(attrs);
    uint32_t n = NumInputs(attrs);
    bool documented = n != nnvm::kVarg && op_->arguments.size() == n;
    std::vector<std::string> out;
    for (const auto& a : documented ? op_->arguments : InputsWithoutNames(n)) out.push_back(a.name);
    return out;
  }
  std::vector<std::string> OutputNames(const NodeAttrs& attrs) const {
    if (const auto* f = Attr<nnvm::FListOutputNames>("FListOutputNames")) return (*f)(attrs);
    uint32_t n = op_->get_num_outputs ? op_->get_num_outputs(attrs) : op_->num_outputs;
    std::vector<std::string> out;
    for (const auto& a : Names(n, "output")) out.push_back(a.name);
    return out;
  }
  static rsnet_status ListNames(const rsnet_host* host, rsnet_ctx* ctx, void* user) {
    return rsnet::protect(host, ctx, [&] {
      NnvmOp* self = Self(user);
      const NodeAttrs& attrs = Parsed(host, ctx);
      const std::vector<std::string> in = self->InputNames(attrs), out = self->OutputNames(attrs);
      std::vector<uint32_t> flags_in(in.size());
      auto mark = [&](const char* key, uint32_t flag) {
        if (const auto* f = self->Attr<nnvm::FMutateInputs>(key)) {
          for (uint32_t i : (*f)(attrs)) {
            if (i < flags_in.size()) flags_in[i] |= flag;
          }
        }
      };
      mark("FMutateInputs", RSNET_STATE);
      mark("FIgnoreInputs", RSNET_IGNORED);
      size_t visible = out.size();
      if (const auto* f = self->Attr<nnvm::FNumVisibleOutputs>("FNumVisibleOutputs")) {
        visible = (*f)(attrs);
      }
      for (size_t i = 0; i < in.size(); ++i) {
        rsnet::check(host->add_name(ctx, RSNET_INPUT, in[i].c_str(), flags_in[i]));
      }
      for (size_t i = 0; i < out.size(); ++i) {
        uint32_t flag = i < visible ? 0 : RSNET_HIDDEN;
        rsnet::check(host->add_name(ctx, RSNET_OUTPUT, out[i].c_str(), flag));
      }
    });
  }
  // Calls a rule over lists of the inputs and of the outputs.
  template <typename Rule, typename List>
  void Infer(const Rule& rule, const NodeAttrs& attrs, List* ins, List* outs) const {
    InferLists([&] { rule(attrs, ins, outs); },
               {{ins, "input", [&] { return InputNames(attrs); }},
                {outs, "output", [&] { return OutputNames(attrs); }}});
  }

  static rsnet_status InferShape(const rsnet_host* host, rsnet_ctx* ctx, void* user) {
    return rsnet::protect(host, ctx, [&] {
      Arrays in(host, ctx, RSNET_INPUT), out(host, ctx, RSNET_OUTPUT);
      const NnvmOp* self = Self(user);
      std::vector<TShape> ins = in.shapes, outs = out.shapes;
      self->Infer(*self->Attr<nnvm::FInferShape>("FInferShape"), Parsed(host, ctx), &ins, &outs);
      LearnShapes(host, ctx, RSNET_INPUT, ins, in);
      LearnShapes(host, ctx, RSNET_OUTPUT, outs, in);
    });
  }
  static rsnet_status InferType(const rsnet_host* host, rsnet_ctx* ctx, void* user) {
    return rsnet::protect(host, ctx, [&] {
      Arrays in(host, ctx, RSNET_INPUT), out(host, ctx, RSNET_OUTPUT);
      const NnvmOp* self = Self(user);
      const auto* given = self->Attr<nnvm::FInferType>("FInferType");
      const nnvm::FInferType rule = given != nullptr ? *given : op::ElemwiseType<-1, -1>;
      AskForTypes(&in.types, &out.types, [&](std::vector<int>* ins, std::vector<int>* outs) {
        self->Infer(rule, Parsed(host, ctx), ins, outs);
      });
      LearnTypes(host, ctx, RSNET_INPUT, in.types);
      LearnTypes(host, ctx, RSNET_OUTPUT, out.types);
    });
  }
  static rsnet_status Inplace(const rsnet_host* host, rsnet_ctx* ctx, void* user) {
    return rsnet::protect(host, ctx, [&] {
      const NodeAttrs& attrs = Parsed(host, ctx);
      std::vector<bool> same;
      if (const auto* f = Self(user)->Attr<nnvm::FInplaceIdentity>("FInplaceIdentity")) {
        same = (*f)(attrs);
      }
      size_t i = 0;
      for (auto [in, out] : (*Self(user)->Attr<nnvm::FInplaceOption>("FInplaceOption"))(attrs)) {
        rsnet::check(host->add_inplace(ctx, in, out, i < same.size() && same[i]));
        ++i;
      }
    });
  }
  std::vector<ResourceRequest> Requests(const NodeAttrs& attrs) const {
    const auto* f = Attr<FResourceRequest>("FResourceRequest");
    return f == nullptr ? std::vector<ResourceRequest>() : (*f)(attrs);
  }
  static rsnet_status Resources(const rsnet_host* host, rsnet_ctx* ctx, void* user) {
    return rsnet::protect(host, ctx, [&] {
      for (const ResourceRequest& r : Self(user)->Requests(Parsed(host, ctx))) {
        if (r.type != ResourceRequest::kTempSpace) rsnet::check(host->add_random(ctx));
      }
    });
  }
  static rsnet_status CreateState(const rsnet_host* host, rsnet_ctx* ctx, void* user, void** made) {
    return rsnet::protect(host, ctx, [&] {
      Arrays in(host, ctx, RSNET_INPUT);
      const auto* f = Self(user)->Attr<FCreateOpState>("FCreateOpState");
      OpStatePtr state = (*f)(Parsed(host, ctx), in.device, in.shapes, in.types);
      *made = new OpStatePtr(std::move(state));
    });
  }

  struct KernelCall {
    NnvmOp* self;
    const FCompute* plain;
    const FStatefulCompute* stateful;
    const FExecType* exec_type;
    const FResourceRequest* requests;
    bool backward;
  };
  static rsnet_status Compute(const rsnet_args* args) {
    return rsnet::protect(args->host, args->ctx, [&] {
      const auto* call = static_cast<const KernelCall*>(args->user);
      const NodeAttrs& attrs = *static_cast<const NodeAttrs*>(args->parsed);
      const FExecType* type = call->plain == nullptr ? call->exec_type : nullptr;
      bool is_async = type != nullptr && (*type)(attrs) == kAsync;
      std::vector<ResourceRequest> requests;
      if (call->requests != nullptr) requests = (*call->requests)(attrs);
      OpContext ctx(args, requests, is_async);
      Operands all(args);
      all.SetInputs(&all->in_data, 0, args->n_in);
      all.SetOutputs(&all->out_data, 0, args->n_out);
      if (call->backward) call->self->CheckInputs(attrs, all->in_data.size());
      if (call->plain != nullptr) {
        (*call->plain)(attrs, ctx, all->in_data, all->req, all->out_data);
      } else {
        if (args->state == nullptr) throw rsnet::Failure("a stateful operator has no FCreateOpState");
        const auto& state = *static_cast<const OpStatePtr*>(args->state);
        (*call->stateful)(state, ctx, all->in_data, all->req, all->out_data);
      }
      ctx.async_on_complete.Wait();
    });
  }

  // Gradients call a backward operator with arrays of their own choice.
  void CheckInputs(const NodeAttrs& attrs, size_t given) const {
    uint32_t n = NumInputs(attrs);
    if (n == given || n == nnvm::kVarg) return;
    throw rsnet::Failure("the gradient passes " + std::to_string(given) + " arrays, expected " +
                         std::to_string(n) + ", as set_num_inputs says");
  }

  template <bool in, bool out>
  static rsnet_status Deps(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      // Of all outputs, hidden ones too; the gradients of those are zeros.
      uint32_t n_in = host->n_arrays(ctx, RSNET_INPUT), n_out = host->n_arrays(ctx, RSNET_OUTPUT);
      op::ElemwiseGrad<in, out>::Read(n_in, n_out, [&](int32_t source, uint32_t i) {
        rsnet::check(host->add_dep(ctx, source, static_cast<int32_t>(i)));
      });
    });
  }

  // The parameters of a node of a gradient. rsnet would take those of the forward node for what a
  // backward operator is not given; as in NNVM it gets its defaults.
  static std::map<std::string, std::string> DictOf(const NodeAttrs& attrs) {
    std::map<std::string, std::string> all(attrs.dict.begin(), attrs.dict.end());
    const bool* backward = attrs.op->attr<bool>("TIsBackward");
    for (const rsnet::AttrText& field : attrs.op->fields) {
      if (backward != nullptr && *backward && field.has_default) all.emplace(field.name, field.dflt);
    }
    return all;
  }
  // A gradient that is made of nodes.
  static rsnet_status Rule(const rsnet_host* host, rsnet_ctx* ctx, void* user) {
    return rsnet::protect(host, ctx, [&] {
      NnvmOp* self = Self(user);
      nnvm::NodePtr node = nnvm::Node::Create();
      node->attrs = Parsed(host, ctx);
      node->attrs.name = host->node_name(ctx);
      int32_t n_in = host->n_arrays(ctx, RSNET_INPUT);
      auto value = [](int32_t source, uint32_t i) {
        return nnvm::NodeEntry{nullptr, i, 0, source};
      };
      for (int32_t i = 0; i < n_in; ++i) node->inputs.push_back(value(RSNET_IN_DATA, i));
      std::vector<nnvm::NodeEntry> ograds;
      node->outputs = static_cast<uint32_t>(host->n_arrays(ctx, RSNET_OUTPUT));
      for (uint32_t i = 0; i < node->outputs; ++i) ograds.push_back(value(RSNET_OUT_GRAD, i));
      std::vector<nnvm::NodeEntry> grads = (*self->Attr<nnvm::FGradient>("FGradient"))(node, ograds);
      std::map<const nnvm::Node*, rsnet_node> made;
      std::set<const nnvm::Node*> begun;
      std::function<rsnet_entry(const nnvm::NodeEntry&)> entry = [&](const nnvm::NodeEntry& e) {
        int32_t i = static_cast<int32_t>(e.index);
        if (e.source >= 0) return host->entry(ctx, e.source, i);
        if (e.node == node) return host->entry(ctx, RSNET_OUT_DATA, i);
        if (e.node == nullptr || e.node->attrs.op == nullptr) {
          throw rsnet::Failure("FGradient returned an entry without an operator");
        }
        auto known = made.find(e.node.get());
        if (known == made.end()) {
          if (!begun.insert(e.node.get()).second) {
            throw rsnet::Failure("FGradient: operator '" + e.node->attrs.op->name +
                                 "' depends on its own output");
          }
          std::vector<rsnet_entry> inputs;
          for (const nnvm::NodeEntry& in : e.node->inputs) inputs.push_back(entry(in));
          const NodeAttrs& attrs = e.node->attrs;
          rsnet_node n = host->node(ctx, attrs.op->name.c_str(), attrs.name.c_str());
          for (rsnet_entry in : inputs) rsnet::check(host->node_input(ctx, n, nullptr, in));
          for (const auto& [key, text] : DictOf(attrs)) {
            rsnet::check(host->node_attr(ctx, n, key.c_str(), text.c_str()));
          }
          known = made.emplace(e.node.get(), n).first;
        }
        return host->node_output(ctx, known->second, nullptr, i);
      };
      for (int32_t i = 0; i < n_in && i < static_cast<int32_t>(grads.size()); ++i) {
        rsnet::check(host->bind_grad(ctx, i, entry(grads[i])));
      }
    });
  }

  nnvm::Op* op_;
};

}  // namespace mxnet

namespace nnvm {

RSNET_LOCAL inline Op& Op::Entry(const std::string& name, bool registers) {
  static std::map<std::string, std::unique_ptr<Op>> all;
  std::unique_ptr<Op>& op = all[name];
  if (op == nullptr) {
    op = std::make_unique<Op>();
    op->name = name;
  }
  if (registers && !op->registered) {
    op->registered = true;
    rsnet::Registered([own = op.get()](const rsnet_host* host, rsnet_registry* registry) {
      return rsnet::keep(::mxnet::NnvmOp(own))->Register(host, registry);
    });
  }
  return *op;
}

}  // namespace nnvm

#define NNVM_REGISTER_OP_GROUP(name) \
  [[maybe_unused]] static ::nnvm::Op& RSNET_UNIQUE(nnvm_group_) = ::nnvm::Op::Group(#name, true)

// As in NNVM, a second registration of a name adds to the first.
#define NNVM_REGISTER_OP(name)                              \
  [[maybe_unused]] static ::nnvm::Op& RSNET_UNIQUE(nnvm_op_) = ::nnvm::Op::Entry(#name, true)

#endif  // RSNET_MXNET_REGISTRY_HPP
