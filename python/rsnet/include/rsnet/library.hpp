// What the C++ headers over plugin.h share: registration before main, failures as exceptions,
// attributes as C++ values. C++17.
//
// A library that includes this header exports what plugin.h asks for. Objects of namespace scope
// register by rsnet::Registered while the library is opened; rsnet_plugin_register hands over what
// they noted.
#ifndef RSNET_LIBRARY_HPP
#define RSNET_LIBRARY_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "rsnet's C++ headers need C++17: compile with -std=c++17"
#endif

#include <rsnet/plugin.h>

#include <clocale>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <locale>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Of functions with static variables: every library needs its own. Without it g++ makes of them one
// for the process, which the first library's headers fill.
#define RSNET_LOCAL __attribute__((visibility("hidden")))

#define RSNET_CAT_(a, b) a##b
#define RSNET_CAT(a, b) RSNET_CAT_(a, b)
#define RSNET_UNIQUE(name) RSNET_CAT(name, __COUNTER__)

namespace rsnet {

// A failure with its status.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& text, rsnet_status status = RSNET_INVALID)
      : std::runtime_error(text), status(status) {}
  rsnet_status status;
};

// Thrown where a function asks for a shape or dtype that is not known yet.
struct Unknown {};

// Hands something over to rsnet; returns a status of rsnet.
using Step = std::function<rsnet_status(const rsnet_host*, rsnet_registry*)>;

RSNET_LOCAL inline std::vector<Step>& steps() {
  static std::vector<Step> all;
  return all;
}

// Keeps an object as long as the library: what `user` pointers point to.
template <typename T>
T* keep(T value) {
  return new T(std::move(value));
}

// Memory that is kept for later calls of the thread, on whose stack this stands. More than one may
// have its own at a time: a kernel may run another one, as by a call of its library that ends in
// rsnet.
template <typename T>
class Reused {
 public:
  Reused() : here_(Here()), before_(here_.innermost) {
    if (here_.spare.empty()) here_.spare.push_back(std::make_unique<T>());
    kept_ = std::move(here_.spare.back());
    here_.spare.pop_back();
    here_.innermost = kept_.get();
  }
  ~Reused() {
    here_.innermost = before_;
    here_.spare.push_back(std::move(kept_));
  }
  Reused(const Reused&) = delete;
  Reused& operator=(const Reused&) = delete;
  T& operator*() const { return *kept_; }
  T* operator->() const { return kept_.get(); }
  // That of the innermost call on this thread; nullptr outside of calls.
  static T* Innermost() { return Here().innermost; }

 private:
  struct OfThread {
    std::vector<std::unique_ptr<T>> spare;
    T* innermost = nullptr;
  };
  // Looked up once in a call: it may cost 10 ns, by what else is loaded.
  RSNET_LOCAL static OfThread& Here() {
    static thread_local OfThread here;
    return here;
  }
  OfThread& here_;
  T* before_;
  std::unique_ptr<T> kept_;
};

// An object of namespace scope that registers something.
struct Registered {
  explicit Registered(Step step) { steps().push_back(std::move(step)); }
};

inline rsnet_status register_all(const rsnet_host* host, rsnet_registry* registry) {
  for (const Step& step : steps()) {
    try {
      if (rsnet_status status = step(host, registry)) return status;
    } catch (const std::exception& e) {
      host->refuse(registry, e.what());
      return RSNET_INVALID;
    }
  }
  return RSNET_OK;
}

// Runs a callback: what it throws becomes a status and a text.
template <typename F>
rsnet_status protect(const rsnet_host* host, rsnet_ctx* ctx, F&& f) {
  try {
    f();
    return RSNET_OK;
  } catch (const Unknown&) {
    return RSNET_UNKNOWN;
  } catch (const Failure& e) {
    if (*e.what()) host->fail(ctx, e.what());  // else rsnet has noted a text itself
    return e.status;
  }  // Anything else is caught by rsnet_plugin_guard.
}

// Raises the failure that rsnet noted in a context.
inline void check(rsnet_status status) {
  if (status != RSNET_OK) throw Failure("", status);
}

// Calls f(begin, end) on parts of 0..n, each of `grain` items (the last may have fewer), on the
// engine's threads and this one. What it throws is raised here, with its status.
template <typename F>
void parallel_for(const rsnet_host* host, rsnet_ctx* ctx, int64_t n, int64_t grain, const F& f) {
  struct Parts {
    const rsnet_host* host;
    rsnet_ctx* ctx;
    const F* f;
  } parts = {host, ctx, &f};
  auto part = [](void* data, int64_t begin, int64_t end) -> rsnet_status {
    const Parts* parts = static_cast<const Parts*>(data);
    return protect(parts->host, parts->ctx, [&] { (*parts->f)(begin, end); });
  };
  check(host->parallel_for(ctx, n, grain, part, &parts));
}

// A number or list as Python writes it: text that rsnet reads back without loss.
inline std::string to_text(const std::string& value) { return value; }
inline std::string to_text(const char* value) { return value; }
inline std::string to_text(bool value) { return value ? "True" : "False"; }
template <typename T>
std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, std::string> to_text(T value) {
  return std::to_string(value);
}
// Reads what to_text writes, whatever the locale of the process; false if it is not a number.
RSNET_LOCAL inline bool parse_real(const std::string& text, double* value) {
  static const locale_t classic = newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(nullptr));
  char* end = nullptr;
  *value = strtod_l(text.c_str(), &end, classic);
  return end != text.c_str() && *end == 0;
}
template <typename T>
std::enable_if_t<std::is_floating_point_v<T>, std::string> to_text(T value) {
  std::string text;
  double read = 0;
  // The shortest text that is read as the same number: 0.1 rather than 0.100000001.
  for (int digits = 6; digits <= (std::is_same_v<T, float> ? 9 : 17); ++digits) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(digits);
    out << value;
    text = out.str();
    if (parse_real(text, &read) && static_cast<T>(read) == value) break;
  }
  return text;
}
template <typename T>
std::string to_text(const std::optional<T>& value) {
  return value ? to_text(*value) : "None";
}
inline std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\\' || c == '\'') out += '\\';
    out += c;
  }
  return out + "'";
}
inline std::string tuple_text(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "(" : ", ") + item;
  return items.empty() ? "()" : out + (items.size() == 1 ? ",)" : ")");
}
template <typename T>
std::string list_text(const std::vector<T>& items) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < items.size(); ++i) {
    if constexpr (std::is_same_v<T, std::string>) {
      texts.push_back(quoted(items[i]));
    } else {
      texts.push_back(to_text(static_cast<T>(items[i])));
    }
  }
  return tuple_text(texts);
}

// An attribute's description with texts of its own.
struct AttrText {
  int32_t kind = 0;
  std::string name, doc, dflt;
  bool has_default = false;
  std::vector<std::string> choices;
  uint32_t flags = 0;
  double low = 0, high = 0;
};

// Descriptions in C of attributes; valid as long as both.
class AttrList {
 public:
  explicit AttrList(const std::vector<AttrText>& attrs) {
    for (const AttrText& a : attrs) {
      pointers_.emplace_back();
      for (const std::string& c : a.choices) pointers_.back().push_back(c.c_str());
      rsnet_attr out = {};
      out.struct_size = sizeof out;
      out.kind = a.kind;
      out.name = a.name.c_str();
      out.doc = a.doc.c_str();
      out.dflt = a.has_default ? a.dflt.c_str() : nullptr;
      out.choices = pointers_.back().data();
      out.n_choices = static_cast<int32_t>(a.choices.size());
      out.flags = a.flags;
      out.low = a.low;
      out.high = a.high;
      attrs_.push_back(out);
    }
  }
  const rsnet_attr* data() const { return attrs_.data(); }
  int32_t size() const { return static_cast<int32_t>(attrs_.size()); }

 private:
  std::deque<std::vector<const char*>> pointers_;
  std::vector<rsnet_attr> attrs_;
};

// An argument's description with a name of its own.
struct ArgText {
  std::string name, doc;
  int32_t count = 1;
  uint32_t flags = 0;
};

// Notes an argument that is documented in MXNet's style, if its type says that it is an array;
// returns whether it is one.
inline bool add_array(std::vector<ArgText>* args, const std::string& name, const std::string& type,
                      const std::string& doc) {
  bool is_array = type.rfind("NDArray", 0) == 0 || type.rfind("Symbol", 0) == 0;
  if (is_array) args->push_back({name, doc, 1, 0});
  return is_array;
}

inline std::vector<rsnet_arg> arg_list(const std::vector<ArgText>& args) {
  std::vector<rsnet_arg> out;
  for (const ArgText& a : args) {
    out.push_back({sizeof(rsnet_arg), a.flags, a.name.c_str(), a.doc.c_str(), a.count});
  }
  return out;
}

}  // namespace rsnet

extern "C" __attribute__((weak)) RSNET_EXPORT const uint32_t rsnet_plugin_abi = RSNET_ABI;

extern "C" __attribute__((weak, used)) RSNET_EXPORT rsnet_status rsnet_plugin_register(
    const rsnet_host* host, rsnet_registry* registry) {
  return rsnet::register_all(host, registry);
}

#endif  // RSNET_LIBRARY_HPP
