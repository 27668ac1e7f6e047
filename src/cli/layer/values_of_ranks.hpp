// What every rank knows, told to all.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::cli {

/// Collective; by rank.
template <class Value>
std::vector<Value> values_of_ranks(World& world, Value mine) {
  std::vector<Value> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1))))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Value));
  return all;
}

}  // namespace shunt::cli
