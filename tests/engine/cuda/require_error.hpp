// What a call must throw, on a thread of a rank, where expectations of gtest would not end it.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "shunt/error.hpp"

namespace shunt::test {

/// Throws unless the call throws an Error with this code and with this text in it.
inline void require_error(ErrorCode code, const std::string& text, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == code && std::string(error.what()).find(text) != std::string::npos) return;
    throw std::runtime_error(fmt::format("not the expected error: {}", error.what()));
  }
  throw std::runtime_error("no Error was thrown");
}

}  // namespace shunt::test
