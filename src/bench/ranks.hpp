// What the ranks of a benchmark tell each other.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::bench {

/// Collective; by rank.
template <class Value>
std::vector<Value> values_of_ranks(World& world, Value mine) {
  std::vector<Value> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1))))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Value));
  return all;
}

/// Collective over threads of one process: what `make` gave on rank 0.
template <class T, class Make>
std::shared_ptr<T> share_of_rank_0(World& world, const Make& make) {
  std::shared_ptr<T> shared;
  if (world.rank().value == 0) shared = make();
  const std::shared_ptr<T>* mine = &shared;
  const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  const std::shared_ptr<T>* first = nullptr;
  std::memcpy(&first, all[0].data(), sizeof(first));
  if (world.rank().value != 0) shared = *first;
  world.barrier();  // all have taken theirs
  return shared;
}

}  // namespace shunt::bench
