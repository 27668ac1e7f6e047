// Output to stdout.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

#include "core/fail.hpp"

namespace shunt::cli {

/// "1 rank", "2 ranks".
inline std::string plural(std::int64_t number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

/// Flushes stdout. Throws Error(system) if some output could not be written.
inline void flush_stdout() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) fail_errno("can't write to standard output");
}

}  // namespace shunt::cli
