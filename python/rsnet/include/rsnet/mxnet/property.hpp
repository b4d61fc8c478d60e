// MXNET_REGISTER_OP_PROPERTY: stateful operators by Operator and OperatorProperty. See
// rsnet/mxnet.h.
#ifndef RSNET_MXNET_PROPERTY_HPP
#define RSNET_MXNET_PROPERTY_HPP

#include <rsnet/mxnet/registry.hpp>

namespace mxnet {

// The computation: one object for every node or recorded call, shared by forward and backward.
class Operator {
 public:
  virtual ~Operator() = default;
  virtual void Forward(const OpContext& ctx, const std::vector<TBlob>& in_data,
                       const std::vector<OpReqType>& req, const std::vector<TBlob>& out_data,
                       const std::vector<TBlob>& aux_states) = 0;
  virtual void Backward(const OpContext&, const std::vector<TBlob>& /*out_grad*/,
                        const std::vector<TBlob>& /*in_data*/,
                        const std::vector<TBlob>& /*out_data*/,
                        const std::vector<OpReqType>& /*req*/,
                        const std::vector<TBlob>& /*in_grad*/,
                        const std::vector<TBlob>& /*aux_states*/) {
    throw rsnet::Failure("Backward is not implemented", RSNET_UNSUPPORTED);
  }
  virtual ExecType exec_type() const { return kSync; }
};

// Describes an operator. Entries of the dependency and in-place methods are opaque.
class OperatorProperty {
 public:
  virtual ~OperatorProperty() = default;
  virtual void Init(const std::vector<std::pair<std::string, std::string>>& kwargs) = 0;
  virtual std::map<std::string, std::string> GetParams() const = 0;
  virtual ExecType exec_type() const { return kSync; }
  virtual std::vector<std::string> ListArguments() const { return {"data"}; }
  virtual std::vector<std::string> ListOutputs() const { return {"output"}; }
  virtual std::vector<std::string> ListAuxiliaryStates() const { return {}; }
  virtual int NumOutputs() const { return static_cast<int>(ListOutputs().size()); }
  virtual int NumVisibleOutputs() const { return NumOutputs(); }
  virtual bool InferShape(std::vector<TShape>* in_shape, std::vector<TShape>* out_shape,
                          std::vector<TShape>* aux_shape) const = 0;
  virtual bool InferType(std::vector<int>* in_type, std::vector<int>* out_type,
                         std::vector<int>* aux_type) const {
    for (size_t i = 0; i < in_type->size(); ++i) AssignType(*in_type, i, mshadow::kFloat32);
    out_type->assign(NumOutputs(), mshadow::kFloat32);
    aux_type->assign(ListAuxiliaryStates().size(), mshadow::kFloat32);
    return true;
  }
  virtual OperatorProperty* Copy() const { return nullptr; }
  virtual std::string TypeString() const = 0;
  virtual std::vector<ResourceRequest> ForwardResource(const std::vector<TShape>&) const {
    return {};
  }
  virtual std::vector<ResourceRequest> BackwardResource(const std::vector<TShape>&) const {
    return {};
  }
  virtual std::vector<int> DeclareBackwardDependency(const std::vector<int>& out_grad,
                                                     const std::vector<int>& in_data,
                                                     const std::vector<int>& out_data) const {
    std::vector<int> all = out_grad;
    all.insert(all.end(), in_data.begin(), in_data.end());
    all.insert(all.end(), out_data.begin(), out_data.end());
    return all;
  }
  // Of all that backward could read, what it declares.
  template <typename T>
  std::vector<T> BackwardInputs(const std::vector<T>& out_grad, const std::vector<T>& in_data,
                                const std::vector<T>& out_data) const {
    std::vector<T> all;
    auto numbered = [&](const std::vector<T>& side) {
      std::vector<int> numbers;
      for (const T& item : side) {
        numbers.push_back(static_cast<int>(all.size()));
        all.push_back(item);
      }
      return numbers;
    };
    std::vector<int> grads = numbered(out_grad), ins = numbered(in_data), outs = numbered(out_data);
    std::vector<T> declared;
    for (int i : DeclareBackwardDependency(grads, ins, outs)) declared.push_back(all[i]);
    return declared;
  }
  virtual std::vector<std::pair<int, void*>> ForwardInplaceOption(
      const std::vector<int>& /*in_data*/, const std::vector<void*>& /*out_data*/) const {
    return {};
  }
  virtual std::vector<std::pair<int, void*>> BackwardInplaceOption(
      const std::vector<int>& /*out_grad*/, const std::vector<int>& /*in_data*/,
      const std::vector<int>& /*out_data*/, const std::vector<void*>& /*in_grad*/) const {
    return {};
  }
  virtual Operator* CreateOperator(Context) const {
    throw rsnet::Failure("CreateOperator is not implemented", RSNET_UNSUPPORTED);
  }
  virtual Operator* CreateOperatorEx(Context ctx, std::vector<TShape>* in_shape,
                                     std::vector<int>* in_type) const {
    std::vector<TShape> out_shape(NumOutputs()), aux_shape(ListAuxiliaryStates().size());
    std::vector<int> out_type(out_shape.size(), -1), aux_type(aux_shape.size(), -1);
    if (!InferType(in_type, &out_type, &aux_type) || !InferShape(in_shape, &out_shape, &aux_shape)) {
      throw rsnet::Failure("InferType or InferShape returns false for known inputs");
    }
    return CreateOperator(ctx);
  }
};

// A property on its way to rsnet: a forward and a backward operator over one state.
class PropertyOp {
 public:
  PropertyOp(std::string name, std::function<OperatorProperty*()> create)
      : name_(std::move(name)), back_("_backward_" + name_), create_(std::move(create)) {}

  PropertyOp& describe(const std::string& text) {
    doc_ = text;
    return *this;
  }
  PropertyOp& add_argument(const std::string& argument, const std::string& type,
                           const std::string& doc) {
    rsnet::add_array(&arguments_, argument, type, doc);
    return *this;
  }
  PropertyOp& add_arguments(const dmlc::parameter::Fields& fields) {
    for (const auto& field : fields) fields_.push_back(field->attr);
    return *this;
  }
  PropertyOp& set_key_var_num_args(const std::string& key) {
    count_ = key;
    return *this;
  }
  PropertyOp& add_alias(const std::string& alias) {
    aliases_.push_back(alias);
    return *this;
  }
  PropertyOp& set_return_type(const std::string&) { return *this; }
  const std::string& name() const { return name_; }

  rsnet::Step Step() const {
    auto* self = rsnet::keep(*this);
    return [self](const rsnet_host* host, rsnet_registry* registry) {
      return self->Register(host, registry);
    };
  }

 private:
  // A property with its lists, and what its backward run reads. Entries are numbered: output
  // gradients, inputs, outputs, input gradients.
  struct Made {
    std::unique_ptr<OperatorProperty> prop;
    std::vector<std::string> arguments, outputs, states;
    int visible = 0;
    std::vector<int> out_grad, in_data, out_data, deps;
    // Where out_grad, in_data and out_data stand among the inputs of the backward operator.
    std::vector<int> grad_places, in_places, out_places;

    Made(OperatorProperty* property, const dmlc::Kwargs& kwargs) : prop(property) {
      prop->Init(kwargs);
      arguments = prop->ListArguments();
      outputs = prop->ListOutputs();
      states = prop->ListAuxiliaryStates();
      visible = prop->NumVisibleOutputs();
      int next = 0;
      for (int i = 0; i < visible; ++i) out_grad.push_back(next++);
      for (size_t i = 0; i < arguments.size(); ++i) in_data.push_back(next++);
      for (size_t i = 0; i < outputs.size(); ++i) out_data.push_back(next++);
      for (int e : prop->DeclareBackwardDependency(out_grad, in_data, out_data)) {
        if (Place(e) < 0) deps.push_back(e);
      }
      for (int e : out_grad) grad_places.push_back(Place(e));
      for (int e : in_data) in_places.push_back(Place(e));
      for (int e : out_data) out_places.push_back(Place(e));
    }
    // Where an entry stands among the inputs of the backward operator; -1 if it is not declared.
    int Place(int entry) const {
      auto at = std::find(deps.begin(), deps.end(), entry);
      return at == deps.end() ? -1 : static_cast<int>(at - deps.begin());
    }
  };

  // The operator of a node or recorded call, and what is known of its calls from then on.
  struct State {
    std::unique_ptr<Operator> op;
    std::vector<ResourceRequest> forward;
    std::optional<std::vector<ResourceRequest>> backward;  // from the first backward run on
    bool is_async;
  };

  rsnet_status Register(const rsnet_host* host, rsnet_registry* registry) {
    const std::unique_ptr<OperatorProperty> property(create_());
    const std::string type = property->TypeString();
    if (type != name_) {
      throw rsnet::Failure("invalid TypeString() '" + type + "' of the property of operator '" +
                           name_ + "': expected the operator's name");
    }
    TakeOver(nnvm::Op::Entry(name_, false));
    std::vector<rsnet_arg> inputs = rsnet::arg_list(arguments_);
    rsnet::AttrList attrs(fields_);
    std::vector<const char*> aliases;
    for (const std::string& alias : aliases_) aliases.push_back(alias.c_str());
    rsnet_op op = {};
    op.struct_size = sizeof op;
    const uint32_t is_long = property->exec_type() == kSync ? 0 : RSNET_LONG;
    op.flags = RSNET_NOT_DETERMINISTIC | is_long;
    op.name = name_.c_str();
    op.doc = doc_.c_str();
    op.aliases = aliases.data();
    op.n_aliases = static_cast<int32_t>(aliases.size());
    op.inputs = inputs.data();
    op.n_inputs = static_cast<int32_t>(inputs.size());
    op.attrs = attrs.data();
    op.n_attrs = attrs.size();
    if (!count_.empty()) op.count_attr = count_.c_str();
    op.user = this;
    op.parse = Parse;
    op.free_parsed = [](void* made) { delete static_cast<Made*>(made); };
    op.names = ForwardNames;
    op.infer_shape = InferShape;
    op.infer_type = InferType;
    op.inplace = ForwardInplace;
    op.resources = ForwardResources;
    op.create_state = CreateState;
    op.destroy_state = [](void* made) { delete static_cast<State*>(made); };
    if (rsnet_status status = host->register_op(registry, &op)) return status;
    rsnet_op back = op;
    back.flags = RSNET_BACKWARD | RSNET_NOT_DETERMINISTIC | is_long;
    back.name = back_.c_str();
    back.n_aliases = 0;
    back.count_attr = nullptr;
    back.names = BackwardNames;
    back.infer_shape = back.infer_type = nullptr;
    back.inplace = BackwardInplace;
    back.resources = BackwardResources;
    back.create_state = nullptr;
    back.destroy_state = nullptr;
    if (rsnet_status status = host->register_op(registry, &back)) return status;
    rsnet_match match = {RSNET_M_DEVICE, RSNET_EQ, nullptr, 0, {0, 0, 0}, RSNET_CPU, nullptr};
    rsnet_kernel kernel = {};
    kernel.struct_size = sizeof kernel;
    kernel.op = name_.c_str();
    kernel.name = "cpu";
    kernel.match = &match;
    kernel.n_match = 1;
    kernel.user = this;
    kernel.compute = Forward;
    if (rsnet_status status = host->register_kernel(registry, &kernel)) return status;
    kernel.op = back_.c_str();
    kernel.compute = Backward;
    if (rsnet_status status = host->register_kernel(registry, &kernel)) return status;
    rsnet_grad grad = {};
    grad.struct_size = sizeof grad;
    grad.kind = RSNET_GRAD_BACKWARD;
    grad.op = name_.c_str();
    grad.backward = back_.c_str();
    grad.deps = Deps;
    grad.user = this;
    return host->register_grad(registry, &grad);
  }

  // What NNVM_REGISTER_OP adds to the operator.
  void TakeOver(const nnvm::Op& more) {
    aliases_.insert(aliases_.end(), more.aliases.begin(), more.aliases.end());
    if (!more.description.empty()) doc_ = more.description;
    for (const auto& [key, value] : more.attrs) {
      if (key == "FSetInputVarAttrOnCompose") continue;
      throw rsnet::Failure("operator '" + name_ + "': its property says what set_attr(\"" + key +
                           "\") would");
    }
  }

  // ---- Callbacks -------------------------------------------------------------------------------

  static const Made& Parsed(const rsnet_host* host, rsnet_ctx* ctx) {
    return *static_cast<const Made*>(host->parsed(ctx));
  }
  static rsnet_status Parse(const rsnet_host* host, rsnet_ctx* ctx, void* user, void** made) {
    return rsnet::protect(host, ctx, [&] {
      auto* self = static_cast<PropertyOp*>(user);
      *made = new Made(self->create_(), ReadParams(self->fields_, host, ctx));
    });
  }
  static void Add(const rsnet_host* host, rsnet_ctx* ctx, int32_t side, const std::string& name,
                  uint32_t flags = 0) {
    rsnet::check(host->add_name(ctx, side, name.c_str(), flags));
  }
  static rsnet_status ForwardNames(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      for (const auto& name : m.arguments) Add(host, ctx, RSNET_INPUT, name);
      for (const auto& name : m.states) Add(host, ctx, RSNET_INPUT, name, RSNET_STATE);
      for (size_t i = 0; i < m.outputs.size(); ++i) {
        Add(host, ctx, RSNET_OUTPUT, m.outputs[i], static_cast<int>(i) < m.visible ? 0 : RSNET_HIDDEN);
      }
    });
  }
  static rsnet_status BackwardNames(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      for (int entry : m.deps) Add(host, ctx, RSNET_INPUT, "entry" + std::to_string(entry));
      for (const auto& name : m.states) Add(host, ctx, RSNET_INPUT, name, RSNET_STATE);
      for (const auto& name : m.arguments) Add(host, ctx, RSNET_OUTPUT, name + "_grad");
      for (const auto& name : m.states) Add(host, ctx, RSNET_OUTPUT, name + "_grad");
    });
  }
  static rsnet_status Deps(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      int32_t n_grad = static_cast<int32_t>(m.out_grad.size());
      int32_t n_in = static_cast<int32_t>(m.in_data.size());
      for (int entry : m.deps) {
        int32_t source = entry < n_grad          ? RSNET_OUT_GRAD
                         : entry < n_grad + n_in ? RSNET_IN_DATA
                                                 : RSNET_OUT_DATA;
        int32_t first = source == RSNET_OUT_GRAD  ? 0
                        : source == RSNET_IN_DATA ? n_grad
                                                  : n_grad + n_in;
        rsnet::check(host->add_dep(ctx, source, entry - first));
      }
      for (size_t i = 0; i < m.states.size(); ++i) {
        rsnet::check(host->add_dep(ctx, RSNET_IN_DATA, n_in + static_cast<int32_t>(i)));
      }
    });
  }

  // The shapes or types of the arguments alone, and of the states.
  template <typename T>
  static std::pair<std::vector<T>, std::vector<T>> Split(const std::vector<T>& all, const Made& m) {
    size_t n = std::min(all.size(), m.arguments.size());
    return {{all.begin(), all.begin() + n}, {all.begin() + n, all.end()}};
  }
  static rsnet_status InferShape(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      Arrays in(host, ctx, RSNET_INPUT), out(host, ctx, RSNET_OUTPUT);
      auto [args, states] = Split(in.shapes, m);
      std::vector<TShape> outs = out.shapes;
      auto rule = [&](auto*... lists) {
        if (!m.prop->InferShape(lists...)) outs.resize(out.shapes.size());
      };
      Infer(rule, m, &args, &outs, &states);
      states.resize(m.states.size());
      args.insert(args.end(), states.begin(), states.end());
      LearnShapes(host, ctx, RSNET_INPUT, args, in);
      LearnShapes(host, ctx, RSNET_OUTPUT, outs, in);
    });
  }
  static rsnet_status InferType(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      Arrays in(host, ctx, RSNET_INPUT), out(host, ctx, RSNET_OUTPUT);
      auto [args, known_states] = Split(in.types, m);
      std::vector<int> outs = out.types, states;
      AskForTypes(&args, &outs, [&, known = known_states](auto* ins, auto* results) {
        states = known;
        Infer([&](auto*... lists) { m.prop->InferType(lists...); }, m, ins, results, &states);
      });
      states.resize(m.states.size(), -1);
      args.insert(args.end(), states.begin(), states.end());
      LearnTypes(host, ctx, RSNET_INPUT, args);
      LearnTypes(host, ctx, RSNET_OUTPUT, outs);
    });
  }
  template <typename Rule, typename List>
  static void Infer(const Rule& rule, const Made& m, List* args, List* outs, List* states) {
    InferLists([&] { rule(args, outs, states); },
               {{args, "input", [&] { return m.arguments; }},
                {outs, "output", [&] { return m.outputs; }},
                {states, "auxiliary state", [&] { return m.states; }}});
  }
  // Pointers that stand for arrays in the in-place methods.
  static std::vector<void*> Marks(std::vector<char>& marks, size_t n) {
    marks.resize(n);
    std::vector<void*> out;
    for (char& mark : marks) out.push_back(&mark);
    return out;
  }
  static rsnet_status ForwardInplace(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      std::vector<char> marks;
      std::vector<void*> outs = Marks(marks, m.outputs.size());
      for (auto [in, out] : m.prop->ForwardInplaceOption(m.in_data, outs)) {
        int32_t at = static_cast<int32_t>(static_cast<char*>(out) - marks.data());
        rsnet::check(host->add_inplace(ctx, in - static_cast<int>(m.out_grad.size()), at, 0));
      }
    });
  }
  static rsnet_status BackwardInplace(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      std::vector<char> marks;
      std::vector<void*> grads = Marks(marks, m.arguments.size());
      for (auto [entry, grad] :
           m.prop->BackwardInplaceOption(m.out_grad, m.in_data, m.out_data, grads)) {
        int32_t at = static_cast<int32_t>(static_cast<char*>(grad) - marks.data());
        if (m.Place(entry) >= 0) rsnet::check(host->add_inplace(ctx, m.Place(entry), at, 0));
      }
    });
  }
  static void Ask(const rsnet_host* host, rsnet_ctx* ctx, const std::vector<ResourceRequest>& all) {
    for (const ResourceRequest& r : all) {
      if (r.type != ResourceRequest::kTempSpace) rsnet::check(host->add_random(ctx));
    }
  }
  static rsnet_status ForwardResources(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      Ask(host, ctx, m.prop->ForwardResource(Split(Arrays(host, ctx, RSNET_INPUT).shapes, m).first));
    });
  }
  static rsnet_status BackwardResources(const rsnet_host* host, rsnet_ctx* ctx, void*) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      Ask(host, ctx,
          m.prop->BackwardResource(Split(Arrays(host, ctx, RSNET_OUTPUT).shapes, m).first));
    });
  }
  static rsnet_status CreateState(const rsnet_host* host, rsnet_ctx* ctx, void*, void** made) {
    return rsnet::protect(host, ctx, [&] {
      const Made& m = Parsed(host, ctx);
      Arrays in(host, ctx, RSNET_INPUT);
      auto shapes = Split(in.shapes, m).first;
      auto types = Split(in.types, m).first;
      auto state = std::make_unique<State>();
      state->op.reset(m.prop->CreateOperatorEx(in.device, &shapes, &types));
      if (!state->op) throw rsnet::Failure("CreateOperator returned null", RSNET_INTERNAL);
      shapes = Split(in.shapes, m).first;  // CreateOperatorEx may have changed them
      state->forward = m.prop->ForwardResource(shapes);
      state->is_async = state->op->exec_type() == kAsync || m.prop->exec_type() == kAsync;
      *made = state.release();
    });
  }

  static State& StateOf(const rsnet_args* args) {
    if (args->state == nullptr) throw rsnet::Failure("the operator has no state", RSNET_INTERNAL);
    return *static_cast<State*>(args->state);
  }
  static rsnet_status Forward(const rsnet_args* args) {
    return rsnet::protect(args->host, args->ctx, [&] {
      const Made& m = *static_cast<const Made*>(args->parsed);
      const State& state = StateOf(args);
      Operands all(args);
      all.SetInputs(&all->in_data, 0, m.arguments.size());
      all.SetInputs(&all->states, m.arguments.size(), args->n_in);
      all.SetOutputs(&all->out_data, 0, args->n_out);
      OpContext ctx(args, state.forward, state.is_async);
      state.op->Forward(ctx, all->in_data, all->req, all->out_data, all->states);
      ctx.async_on_complete.Wait();
    });
  }
  static rsnet_status Backward(const rsnet_args* args) {
    return rsnet::protect(args->host, args->ctx, [&] {
      const Made& m = *static_cast<const Made*>(args->parsed);
      State& state = StateOf(args);
      Operands all(args);
      all.SetInputs(&all->out_grad, m.grad_places);
      all.SetInputs(&all->in_data, m.in_places);
      all.SetInputs(&all->out_data, m.out_places);
      all.SetInputs(&all->states, m.deps.size(), args->n_in);
      all.SetOutputs(&all->in_grad, 0, m.arguments.size());
      // Auxiliary states have no gradients.
      for (int32_t i = static_cast<int32_t>(m.arguments.size()); i < args->n_out; ++i) {
        if (args->req[i] == kNullOp) continue;
        const rsnet_tensor& zeros = args->out[i];
        std::memset(rsnet_data(&zeros), 0, rsnet_size(&zeros) * zeros.dtype.bits / 8);
      }
      if (!state.backward) {
        std::vector<TShape> shapes;
        for (const TBlob& grad : all->in_grad) shapes.push_back(grad.shape_);
        state.backward = m.prop->BackwardResource(shapes);
      }
      OpContext ctx(args, *state.backward, state.is_async);
      state.op->Backward(ctx, all->out_grad, all->in_data, all->out_data, all->req, all->in_grad,
                         all->states);
      ctx.async_on_complete.Wait();
    });
  }

  std::string name_, back_, doc_, count_;
  std::function<OperatorProperty*()> create_;
  std::vector<std::string> aliases_;
  std::vector<rsnet::ArgText> arguments_;
  std::vector<rsnet::AttrText> fields_;
};

struct PropertyRegistration : rsnet::Registered {
  PropertyRegistration(const PropertyOp& op) : rsnet::Registered(op.Step()) {
    nnvm::Op::Properties().insert(op.name());
  }
};

namespace op {
using ::mxnet::Operator;
using ::mxnet::OperatorProperty;
}  // namespace op

}  // namespace mxnet

// The end of a CreateOperator: Method<cpu>, of which a library has to have the specialisation.
#define DO_BIND_DISPATCH(Method, ...)                                                 \
  do {                                                                                \
    if (ctx.dev_mask() == ::mshadow::cpu::kDevMask) return Method<cpu>(__VA_ARGS__);  \
    throw ::rsnet::Failure("properties have operators for cpu only", RSNET_UNSUPPORTED); \
  } while (0)

#define MXNET_REGISTER_OP_PROPERTY(name, Property)                                    \
  [[maybe_unused]] static const ::mxnet::PropertyRegistration RSNET_UNIQUE(mxnet_op_) = \
      ::mxnet::PropertyOp(#name, []() -> ::mxnet::OperatorProperty* { return new Property(); })

#endif  // RSNET_MXNET_PROPERTY_HPP
