// Which ports this process may listen at.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/fail.hpp"

namespace shunt {

/// The ports of "first-last" in the order to try them, in which processes of one host start at different places; for
/// an empty range 0, which is any port. Throws Error(invalid_argument).
inline std::vector<std::uint16_t> ports_of(std::string_view range) {
  if (range.empty()) return {0};
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  const char* const end = range.data() + range.size();
  const auto [dash, first_error] = std::from_chars(range.data(), end, first);
  const bool has_dash = first_error == std::errc() && dash != end && *dash == '-';
  const auto [rest, last_error] = std::from_chars(has_dash ? dash + 1 : end, end, last);
  if (last_error != std::errc() || rest != end || first == 0 || last < first)
    fail(ErrorCode::invalid_argument, "SHUNT_PORT_RANGE='{}': expected first-last", range);
  std::vector<std::uint16_t> ports(static_cast<std::size_t>(last - first) + 1);
  std::iota(ports.begin(), ports.end(), first);
  std::rotate(ports.begin(), ports.begin() + getpid() % static_cast<std::ptrdiff_t>(ports.size()), ports.end());
  return ports;
}

}  // namespace shunt
