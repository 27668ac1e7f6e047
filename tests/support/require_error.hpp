// The Error that a call must end with, also in a rank's thread.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "shunt/error.hpp"

namespace shunt::test {

/// Throws what is not as it must be; whoever runs the rank turns that into a failure of the test.
inline void require_error(const std::function<void()>& call, ErrorCode code, const std::string& text) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == code && std::string(error.what()).find(text) != std::string::npos) return;
    throw std::runtime_error("not the expected error: " + std::string(error.what()));
  }
  throw std::runtime_error("no Error was thrown");
}

}  // namespace shunt::test
