// CHECK and its kin, as glog and dmlc have them: a failed check throws, with the message that is
// streamed into it.
#ifndef RSNET_CHECKS_HPP
#define RSNET_CHECKS_HPP

#include <rsnet/library.hpp>

#include <iostream>
#include <optional>
#include <type_traits>

namespace rsnet {

// The message of a failed check. What is streamed into it may throw itself: then that is the
// failure.
class FailedCheck : public std::ostringstream {
 public:
  explicit FailedCheck(const std::string& what) { *this << "Check failed: " << what << " "; }
  std::ostream& stream() { return *this; }
};

// Throws a message when it is complete: & binds less tightly than <<, and is still an expression.
struct Raise {
  [[noreturn]] void operator&(const std::ostream& message) const {
    throw Failure(static_cast<const FailedCheck&>(message).str(), RSNET_INTERNAL);
  }
};

// A value in a message; of what has no text a question mark.
template <typename T, typename = void>
struct IsStreamable : std::false_type {};
template <typename T>
struct IsStreamable<T, std::void_t<decltype(std::declval<std::ostream&>() << std::declval<T>())>>
    : std::true_type {};
template <typename T>
void show(std::ostream& out, const T& value) {
  if constexpr (std::is_enum_v<T> && !IsStreamable<const T&>::value) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
    out << static_cast<const volatile void*>(value);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    out << +value;
  } else if constexpr (IsStreamable<const T&>::value) {
    out << value;
  } else {
    out << '?';
  }
}

// What a comparison that fails adds to the message: both values.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#define RSNET_COMPARE(name, op)                                              \
  template <typename A, typename B>                                          \
  std::optional<std::string> name(const A& a, const B& b) {                  \
    if (a op b) return std::nullopt;                                         \
    std::ostringstream out;                                                  \
    show(out << " (", a);                                                    \
    show(out << " vs. ", b);                                                 \
    return out.str() + ")";                                                  \
  }
RSNET_COMPARE(differ, ==)
RSNET_COMPARE(equal, !=)
RSNET_COMPARE(not_less, <)
RSNET_COMPARE(greater, <=)
RSNET_COMPARE(not_greater, >)
RSNET_COMPARE(less, >=)
#undef RSNET_COMPARE
#pragma GCC diagnostic pop

// One line of a log on standard error, written as a whole at the end of the statement.
class LogLine {
 public:
  explicit LogLine(const char* severity) { text_ << severity << ": "; }
  ~LogLine() {
    text_ << '\n';
    std::cerr << text_.str() << std::flush;
  }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

// The pointer, which must not be null.
template <typename Pointer>
Pointer not_null(Pointer pointer, const char* what) {
  if (pointer == nullptr) throw Failure(std::string("Check failed: ") + what, RSNET_INTERNAL);
  return pointer;
}

}  // namespace rsnet

// Loops rather than branches, so that an `else` that follows is not theirs; what fails throws.
#define RSNET_CHECK(ok, what) \
  while (!(ok)) ::rsnet::Raise() & ::rsnet::FailedCheck(what).stream()
#define RSNET_CHECK_OP(a, op, b, fails)                          \
  while (const auto rsnet_why = ::rsnet::fails((a), (b)))        \
  ::rsnet::Raise() & ::rsnet::FailedCheck(#a " " #op " " #b + *rsnet_why).stream()
#ifndef CHECK
#define CHECK(x) RSNET_CHECK((x), #x)
#define CHECK_EQ(a, b) RSNET_CHECK_OP(a, ==, b, differ)
#define CHECK_NE(a, b) RSNET_CHECK_OP(a, !=, b, equal)
#define CHECK_LT(a, b) RSNET_CHECK_OP(a, <, b, not_less)
#define CHECK_LE(a, b) RSNET_CHECK_OP(a, <=, b, greater)
#define CHECK_GT(a, b) RSNET_CHECK_OP(a, >, b, not_greater)
#define CHECK_GE(a, b) RSNET_CHECK_OP(a, >=, b, less)
#endif
#ifndef CHECK_NOTNULL
#define CHECK_NOTNULL(x) ::rsnet::not_null((x), #x " != nullptr")
#endif
#ifndef DCHECK
#define DCHECK(x) CHECK(x)
#define DCHECK_EQ(a, b) CHECK_EQ(a, b)
#define DCHECK_NE(a, b) CHECK_NE(a, b)
#define DCHECK_LT(a, b) CHECK_LT(a, b)
#define DCHECK_LE(a, b) CHECK_LE(a, b)
#define DCHECK_GT(a, b) CHECK_GT(a, b)
#define DCHECK_GE(a, b) CHECK_GE(a, b)
#endif
#ifndef LOG
#define LOG(severity) RSNET_LOG_##severity
#define RSNET_LOG_FATAL ::rsnet::Raise() & ::rsnet::FailedCheck("fatal").stream()
#define RSNET_LOG_ERROR ::rsnet::LogLine("error").stream()
#define RSNET_LOG_WARNING ::rsnet::LogLine("warning").stream()
#define RSNET_LOG_INFO ::rsnet::LogLine("info").stream()
#define LOG_IF(severity, condition) \
  for (bool rsnet_logs = (condition); rsnet_logs; rsnet_logs = false) LOG(severity)
#endif

#endif  // RSNET_CHECKS_HPP
