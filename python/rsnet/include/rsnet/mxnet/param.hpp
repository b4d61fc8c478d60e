// dmlc's parameter structs: DMLC_DECLARE_PARAMETER, DMLC_DECLARE_FIELD. See rsnet/mxnet.h.
//
// rsnet parses and checks the parameters of a call by the struct's declaration; the struct is then
// filled from texts that are known to fit.
#ifndef RSNET_MXNET_PARAM_HPP
#define RSNET_MXNET_PARAM_HPP

#include <rsnet/mxnet/base.hpp>
#include <rsnet/mxnet/blob.hpp>

#include <limits>

namespace dmlc {

using Kwargs = std::vector<std::pair<std::string, std::string>>;

namespace parameter {

// A floating-point number, as rsnet writes it: with a point in every locale; too small a one is
// rounded.
inline double Real(const std::string& text) {
  double value = 0;
  if (rsnet::parse_real(text, &value)) return value;
  throw rsnet::Failure("invalid number '" + text + "': expected digits with a decimal point");
}

// A number that T holds.
template <typename T>
struct Item {
  static T Read(const std::string& word) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(Real(word));
    long long value = std::stoll(word);
    if (static_cast<long long>(static_cast<T>(value)) == value && (value < 0) == (T(value) < 0)) {
      return static_cast<T>(value);
    }
    throw rsnet::Failure("invalid number " + word + ": expected " +
                         std::to_string(std::numeric_limits<T>::min()) + " to " +
                         std::to_string(std::numeric_limits<T>::max()));
  }
};
template <typename T>
struct Item<std::optional<T>> {
  static std::optional<T> Read(const std::string& word) {
    return word == "None" ? std::nullopt : std::optional<T>(Item<T>::Read(word));
  }
};

// A list as text, item by item.
template <typename T>
std::vector<T> Items(const std::string& text) {
  std::string plain = text;
  for (char& c : plain) {
    if (c == '(' || c == ')' || c == '[' || c == ']' || c == ',') c = ' ';
  }
  std::istringstream in(plain);
  std::vector<T> out;
  std::string word;
  while (in >> word) out.push_back(Item<T>::Read(word));
  return out;
}

// How a C++ type is declared, read from text, and written as text.
template <typename T>
struct Type;
#define RSNET_MX_FIELD(T, number, read)                                     \
  template <>                                                               \
  struct Type<T> {                                                          \
    RSNET_LOCAL static constexpr int32_t kind = number;                     \
    RSNET_LOCAL static constexpr uint32_t flags = 0;                        \
    static T Read(const std::string& text) { return read; }                 \
    static std::string Text(const T& value) { return rsnet::to_text(value); } \
  };
RSNET_MX_FIELD(int, RSNET_I32, std::stoi(text))
RSNET_MX_FIELD(unsigned, RSNET_U32, static_cast<unsigned>(std::stoul(text)))
RSNET_MX_FIELD(long, RSNET_I64, std::stol(text))
RSNET_MX_FIELD(long long, RSNET_I64, std::stoll(text))
RSNET_MX_FIELD(unsigned long, RSNET_U64, std::stoul(text))
RSNET_MX_FIELD(unsigned long long, RSNET_U64, std::stoull(text))
RSNET_MX_FIELD(float, RSNET_F32, static_cast<float>(Real(text)))
RSNET_MX_FIELD(double, RSNET_F64, Real(text))
RSNET_MX_FIELD(bool, RSNET_BOOL, text == "True" || text == "true" || text == "1")
RSNET_MX_FIELD(std::string, RSNET_STR, text)
#undef RSNET_MX_FIELD
template <>
struct Type<nnvm::TShape> {
  RSNET_LOCAL static constexpr int32_t kind = RSNET_SHAPE;
  // TShape() is None, which is not the shape () of a scalar.
  RSNET_LOCAL static constexpr uint32_t flags = RSNET_MAY_BE_NONE;
  static nnvm::TShape Read(const std::string& text) {
    if (text == "None") return nnvm::TShape();
    std::vector<int64_t> dims = Items<int64_t>(text);
    return nnvm::TShape(dims.begin(), dims.end());
  }
  static std::string Text(const nnvm::TShape& value) { return value.Text(); }
};
template <typename N>
constexpr int32_t kListOf = RSNET_SHAPE;
template <>
inline constexpr int32_t kListOf<float> = RSNET_LIST_F32;
template <>
inline constexpr int32_t kListOf<double> = RSNET_LIST_F64;
template <typename N>
constexpr int32_t kListOf<std::optional<N>> = RSNET_LIST_MAYBE_I64;
template <typename N>
struct Type<nnvm::Tuple<N>> {
  RSNET_LOCAL static constexpr int32_t kind = kListOf<N>;
  RSNET_LOCAL static constexpr uint32_t flags = 0;
  static nnvm::Tuple<N> Read(const std::string& text) {
    std::vector<N> items = Items<N>(text);
    return nnvm::Tuple<N>(items.begin(), items.end());
  }
  static std::string Text(const nnvm::Tuple<N>& value) {
    return rsnet::list_text(std::vector<N>(value.begin(), value.end()));
  }
};
template <typename T>
struct Type<std::optional<T>> {
  RSNET_LOCAL static constexpr int32_t kind = Type<T>::kind;
  RSNET_LOCAL static constexpr uint32_t flags = RSNET_MAY_BE_NONE;
  static std::optional<T> Read(const std::string& text) {
    return text == "None" ? std::optional<T>() : std::optional<T>(Type<T>::Read(text));
  }
  static std::string Text(const std::optional<T>& value) {
    return value ? Type<T>::Text(*value) : "None";
  }
};

// A field while it is declared, and afterwards.
class Field {
 public:
  virtual ~Field() = default;
  virtual void Set(void* param, const std::string& text) const = 0;
  virtual std::string Get(const void* param) const = 0;
  rsnet::AttrText attr;
  std::string alias_of;  // the field that this is another name of, or none
};

template <typename T>
class FieldEntry : public Field {
 public:
  FieldEntry(const char* name, size_t offset) : offset_(offset) {
    attr.name = name;
    attr.kind = Type<T>::kind;
    attr.flags = Type<T>::flags;
  }
  FieldEntry& set_default(const T& value) {
    attr.has_default = true;
    default_ = value;
    attr.dflt = TextOf(default_);
    return *this;
  }
  FieldEntry& describe(const std::string& text) {
    attr.doc = text;
    return *this;
  }
  FieldEntry& set_range(double low, double high) { return set_lower_bound(low).set_upper_bound(high); }
  FieldEntry& set_lower_bound(double low) {
    attr.flags |= RSNET_HAS_LOW;
    attr.low = low;
    return *this;
  }
  FieldEntry& set_upper_bound(double high) {
    attr.flags |= RSNET_HAS_HIGH;
    attr.high = high;
    return *this;
  }
  FieldEntry& add_enum(const std::string& name, int value) {
    attr.kind = RSNET_ENUM;
    attr.choices.push_back(name);
    names_.emplace_back(name, value);
    if (attr.has_default) attr.dflt = TextOf(default_);
    return *this;
  }

  void Set(void* param, const std::string& text) const override {
    T& field = *reinterpret_cast<T*>(static_cast<char*>(param) + offset_);
    if constexpr (std::is_assignable_v<T&, int>) {
      for (const auto& [name, value] : names_) {
        if (name == text) {
          field = value;
          return;
        }
      }
    }
    field = Type<T>::Read(text);
  }
  std::string Get(const void* param) const override {
    return TextOf(*reinterpret_cast<const T*>(static_cast<const char*>(param) + offset_));
  }

 private:
  std::string TextOf(const T& value) const {
    if constexpr (std::is_convertible_v<T, int>) {
      for (const auto& [name, number] : names_) {
        if (number == static_cast<int>(value)) return name;
      }
    } else if constexpr (std::is_same_v<T, std::optional<int>>) {
      for (const auto& [name, number] : names_) {
        if (value && number == *value) return name;
      }
    }
    return Type<T>::Text(value);
  }
  size_t offset_;
  T default_ = T();
  std::vector<std::pair<std::string, int>> names_;
};

// Another name of a field, by which calls may pass its value.
class Alias : public Field {
 public:
  void Set(void*, const std::string&) const override {}
  std::string Get(const void*) const override { return "None"; }
};

using Fields = std::vector<std::shared_ptr<Field>>;

// The fields of the structs that are filled on this thread while it lives.
struct Filled {
  std::vector<const Fields*> fields;
  Filled() { now() = this; }
  ~Filled() { now() = nullptr; }
  Filled(const Filled&) = delete;
  RSNET_LOCAL static Filled*& now() {
    static thread_local Filled* filled = nullptr;
    return filled;
  }
};

}  // namespace parameter

using ParamFieldInfo = std::shared_ptr<parameter::Field>;

// The base of a parameter struct P.
template <typename P>
struct Parameter {
  // Fills the struct from texts. Defaults are taken for those that are not there.
  template <typename Container>
  void Init(const Container& kwargs) {
    P* self = static_cast<P*>(this);
    if (parameter::Filled* filled = parameter::Filled::now()) filled->fields.push_back(&__FIELDS__());
    for (const auto& field : __FIELDS__()) {
      const rsnet::AttrText& attr = field->attr;
      if (!field->alias_of.empty()) continue;
      bool given = false;
      // A call has all names, one of them with the value, or the first with the default.
      for (bool by_alias : {false, true}) {
        for (const auto& [name, text] : kwargs) {
          if (by_alias == (name == attr.name) || !Gives(name, text, *field)) continue;
          SetNamed(*field, self, text);
          given = true;
        }
      }
      if (given) continue;
      if (!attr.has_default) throw rsnet::Failure("missing parameter '" + attr.name + "'");
      field->Set(self, attr.dflt);
    }
  }
  // As Init; returns the arguments that are not parameters.
  template <typename Container>
  std::vector<std::pair<std::string, std::string>> InitAllowUnknown(const Container& kwargs) {
    Init(kwargs);
    return Unknown(kwargs);
  }
  // Sets the given parameters, and leaves the others as they are.
  template <typename Container>
  std::vector<std::pair<std::string, std::string>> UpdateAllowUnknown(const Container& kwargs) {
    std::map<std::string, std::string> all = __DICT__();
    for (const auto& field : __FIELDS__()) {
      for (const auto& [name, text] : kwargs) {
        if (field->alias_of.empty() && Gives(name, text, *field)) all[field->attr.name] = text;
      }
    }
    Init(all);
    return Unknown(kwargs);
  }
  std::map<std::string, std::string> __DICT__() const {
    std::map<std::string, std::string> out;
    const P* self = static_cast<const P*>(this);
    for (const auto& field : __FIELDS__()) {
      if (field->alias_of.empty()) out[field->attr.name] = field->Get(self);
    }
    return out;
  }
  RSNET_LOCAL static const parameter::Fields& __FIELDS__() {
    static const parameter::Fields fields = [] {
      parameter::Fields out;
      P probe;
      probe.__DECLARE__(out);
      return out;
    }();
    return fields;
  }

 private:
  static void SetNamed(const parameter::Field& field, P* self, const std::string& text) {
    try {
      field.Set(self, text);
    } catch (const rsnet::Failure& e) {
      throw rsnet::Failure("invalid " + field.attr.name + " '" + text + "': " + e.what());
    }
  }
  // Is it the field's name, or another one of it that was given a value?
  static bool Gives(const std::string& name, const std::string& text, const parameter::Field& field) {
    if (name == field.attr.name) return true;
    for (const auto& other : __FIELDS__()) {
      if (other->attr.name != name || other->alias_of != field.attr.name) continue;
      return text != other->attr.dflt;
    }
    return false;
  }
  template <typename Container>
  static std::vector<std::pair<std::string, std::string>> Unknown(const Container& kwargs) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& [name, text] : kwargs) {
      bool known = false;
      for (const auto& field : __FIELDS__()) known = known || field->attr.name == name;
      if (!known) out.emplace_back(name, text);
    }
    return out;
  }

 protected:
  template <typename T>
  parameter::FieldEntry<T>& DECLARE(parameter::Fields& fields, const char* name, T& field) {
    CheckFree(fields, name);
    size_t offset = reinterpret_cast<char*>(&field) - reinterpret_cast<char*>(static_cast<P*>(this));
    auto entry = std::make_shared<parameter::FieldEntry<T>>(name, offset);
    fields.push_back(entry);
    return *entry;
  }
  // Another name of a field that has a default: one of both names has to be given otherwise, which
  // a declaration cannot say.
  void ALIAS(parameter::Fields& fields, const std::string& name, const std::string& alias) {
    CheckFree(fields, alias);
    for (const auto& field : fields) {
      bool is_field = field->attr.name == name && field->alias_of.empty();
      if (!is_field || !field->attr.has_default) continue;
      auto other = std::make_shared<parameter::Alias>();
      other->alias_of = name;
      other->attr = field->attr;
      other->attr.name = alias;
      other->attr.doc = "Another name of " + name + ".";
      other->attr.has_default = true;
      // What stands for no value: of texts one that is never passed, since "None" is a text.
      bool is_text = field->attr.kind == RSNET_STR;
      other->attr.dflt = is_text ? "<" + name + ">" : "None";
      if (!is_text) other->attr.flags |= RSNET_MAY_BE_NONE;
      fields.push_back(other);
      return;
    }
    throw rsnet::Failure("DMLC_DECLARE_ALIAS(" + name + ", " + alias +
                         "): there is no such field with a default");
  }

 private:
  static void CheckFree(const parameter::Fields& fields, const std::string& name) {
    for (const auto& field : fields) {
      if (field->attr.name != name) continue;
      throw rsnet::Failure("the name " + name +
                           " is declared twice, as a field or as another name of one");
    }
  }
};

}  // namespace dmlc

#define DMLC_DECLARE_PARAMETER(P) inline void __DECLARE__(::dmlc::parameter::Fields& rsnet_fields)
#define DMLC_DECLARE_FIELD(F) this->DECLARE(rsnet_fields, #F, F)
#define DMLC_DECLARE_ALIAS(F, Alias) this->ALIAS(rsnet_fields, #F, #Alias)
#define DMLC_REGISTER_PARAMETER(P) static_assert(sizeof(P) > 0, "a parameter struct")

#endif  // RSNET_MXNET_PARAM_HPP
