// What was printed is an error if it can't be written.
#pragma once

#include <cstdio>
#include <iostream>

#include "core/fail.hpp"

namespace shunt::cli {

/// Writes out what was printed. Throws Error(system) if some of it could not be.
inline void flush_stdout() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) fail_errno("can't write to standard output");
}

}  // namespace shunt::cli
