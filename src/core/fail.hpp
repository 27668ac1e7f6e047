// How the library throws: fail() for errors of users and machines, fail_because_of() for errors of a peer, SHUNT_CHECK
// for broken invariants.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "shunt/error.hpp"
#include "shunt/ids.hpp"

template <class Tag>
struct fmt::formatter<shunt::Id<Tag>> : fmt::formatter<std::int32_t> {
  template <class Context>
  auto format(shunt::Id<Tag> id, Context& context) const {
    return fmt::formatter<std::int32_t>::format(id.value, context);
  }
};

namespace shunt {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

/// For a failed system call; appends the text for errno.
template <class... Args>
[[noreturn]] void fail_errno(fmt::format_string<Args...> text, Args&&... args) {
  const int saved = errno;
  throw Error(ErrorCode::system, fmt::format(text, std::forward<Args>(args)...) + ": " + std::strerror(saved));
}

/// A peer violated the protocol. The culprit is a rank of the whole world or, if thrown by the planner, of the world
/// that is planned for.
class PeerError : public Error {
 public:
  PeerError(RankId culprit, const std::string& text) : Error(ErrorCode::mismatch, text), culprit_(culprit) {}

  [[nodiscard]] RankId culprit() const noexcept { return culprit_; }

 private:
  RankId culprit_;
};

template <class... Args>
[[noreturn]] void fail_because_of(RankId culprit, fmt::format_string<Args...> text, Args&&... args) {
  throw PeerError(culprit, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace shunt

#define SHUNT_CHECK(condition)                                                                                    \
  do {                                                                                                            \
    if (!(condition)) [[unlikely]]                                                                                \
      ::shunt::fail(::shunt::ErrorCode::internal, "{}:{}: broken invariant: {}", __FILE__, __LINE__, #condition); \
  } while (false)
