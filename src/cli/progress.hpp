// One line on the terminal that says how far long work is.
#pragma once

#include <string>

#include "core/diagnostic.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Of rank 0; replaces the line before. Nothing unless `enabled`.
inline void show_progress(const World& world, bool enabled, const std::string& text) {
  if (!enabled || world.rank().value != 0) return;
  print_diagnostic("\r\x1b[K{}", text);
}

}  // namespace shunt::cli
