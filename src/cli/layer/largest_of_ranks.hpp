// The largest of what ranks know.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "shunt/world.hpp"

namespace shunt::cli {

/// Collective; the same on all ranks.
template <class Number>
Number largest_of_ranks(World& world, Number mine) {
  Number largest = mine;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    Number theirs{};
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    largest = std::max(largest, theirs);
  }
  return largest;
}

}  // namespace shunt::cli
