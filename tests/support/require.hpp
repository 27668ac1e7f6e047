// An expectation that also works in a rank's process, where a test framework's own would go unheard.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string_view>

namespace shunt::test {

/// Throws unless it holds. Whoever runs the rank turns that into a failure of the test.
inline void require(bool holds, std::string_view claim, std::source_location where = std::source_location::current()) {
  if (!holds) throw std::runtime_error(fmt::format("{}:{}: does not hold: {}", where.file_name(), where.line(), claim));
}

}  // namespace shunt::test
