// CHECK and its kin, as glog and dmlc have them: a failed check throws, with the message that is
// streamed into it.
#ifndef RSNET_CHECKS_HPP
#define RSNET_CHECKS_HPP

#include <rsnet/library.hpp>

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
#define CHECK_NOTNULL(x) RSNET_CHECK((x) != nullptr, #x " != nullptr")
#endif
#ifndef LOG
#define LOG(severity) RSNET_LOG_##severity
#define RSNET_LOG_FATAL ::rsnet::FailedCheck("fatal").stream()
#define RSNET_LOG_ERROR ::std::cerr
#define RSNET_LOG_WARNING ::std::cerr
#define RSNET_LOG_INFO ::std::cerr
#include <iostream>
#endif

#endif  // RSNET_CHECKS_HPP
