// Numbers of things, as people write them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace shunt::cli {

/// "1 rank", "2 ranks".
inline std::string plural(std::int64_t number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace shunt::cli
