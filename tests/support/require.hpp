// An expectation that also works in a rank's process, where a test framework's own would go unheard.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace shunt::test {

/// Throws unless it holds. Whoever runs the rank turns that into a failure of the test.
/// (Not std::source_location, which clang 14 can't compile.)
inline void require(bool holds, std::string_view claim, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!holds) throw std::runtime_error(fmt::format("{}:{}: does not hold: {}", file, line, claim));
}

}  // namespace shunt::test
