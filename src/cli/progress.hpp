// One line on the terminal that says how far long work is.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "shunt/world.hpp"

namespace shunt::cli {

/// Of rank 0; replaces the line before. Nothing unless `enabled`.
inline void show_progress(const World& world, bool enabled, const std::string& text) {
  if (!enabled || world.rank().value != 0) return;
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
}

}  // namespace shunt::cli
