// Output for people, which no program parses: warnings, progress, the reason why a run failed.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace shunt {

/// Prints to stderr and ignores errors: fmt::print would throw, and a full disk under a log should not end the process.
template <class... Args>
void print_diagnostic(fmt::format_string<Args...> text, Args&&... args) {
  const std::string line = fmt::format(text, std::forward<Args>(args)...);
  (void)std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace shunt
