// The one exception type of the library. docs/errors.md explains each code and what to do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "shunt/language.hpp"

namespace shunt {

enum class ErrorCode {
  invalid_argument,  ///< the caller's input is wrong; nothing was sent, the world is still usable
  mismatch,          ///< ranks called different operations or passed different shapes; the world is poisoned
  peer_lost,         ///< a rank died, left or stopped answering; the world is poisoned
  peer_failed,       ///< a rank reported an exception of its own; the world is poisoned
  deadline,          ///< an operation took longer than its deadline; the world is poisoned
  minority,          ///< too few ranks are left to go on
  unsupported,       ///< this build or this machine can't do what was asked
  system,            ///< the operating system refused (memory, descriptors, files)
  internal,          ///< a broken invariant of shunt itself; please report it
};

std::string_view to_string(ErrorCode code);

/// The message names rank, peer, operation and sizes. docs/errors.md describes what differs on devices.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace shunt
