// CHECK and its kin, as glog and dmlc have them: a failed check throws, with the message that is
// streamed into it.
#ifndef RSNET_CHECKS_HPP
#define RSNET_CHECKS_HPP

#include <rsnet/library.hpp>

#include <iostream>

namespace rsnet {

// Throws at the end of the statement, when the message is complete.
class FailedCheck {
 public:
  explicit FailedCheck(const char* what) { text_ << "Check failed: " << what << " "; }
  [[noreturn]] ~FailedCheck() noexcept(false) { throw Failure(text_.str(), RSNET_INTERNAL); }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

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

#define RSNET_CHECK(ok, what) \
  if (ok) {                   \
  } else                      \
    ::rsnet::FailedCheck(what).stream()
#ifndef CHECK
#define CHECK(x) RSNET_CHECK((x), #x)
#define CHECK_EQ(a, b) RSNET_CHECK((a) == (b), #a " == " #b)
#define CHECK_NE(a, b) RSNET_CHECK((a) != (b), #a " != " #b)
#define CHECK_LT(a, b) RSNET_CHECK((a) < (b), #a " < " #b)
#define CHECK_LE(a, b) RSNET_CHECK((a) <= (b), #a " <= " #b)
#define CHECK_GT(a, b) RSNET_CHECK((a) > (b), #a " > " #b)
#define CHECK_GE(a, b) RSNET_CHECK((a) >= (b), #a " >= " #b)
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
#define RSNET_LOG_FATAL ::rsnet::FailedCheck("fatal").stream()
#define RSNET_LOG_ERROR ::rsnet::LogLine("error").stream()
#define RSNET_LOG_WARNING ::rsnet::LogLine("warning").stream()
#define RSNET_LOG_INFO ::rsnet::LogLine("info").stream()
#define LOG_IF(severity, condition) \
  if (!(condition)) {               \
  } else                            \
    LOG(severity)
#endif

#endif  // RSNET_CHECKS_HPP
