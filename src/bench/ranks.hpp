// Collectives of the ranks of a benchmark.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::bench {

/// Collective: returns every rank's value, by rank.
template <class Value>
std::vector<Value> gather_values(World& world, Value mine) {
  std::vector<Value> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1))))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Value));
  return all;
}

/// Collective over threads of one process: calls make() on rank 0 and shares the result with all ranks.
template <class T, class Make>
std::shared_ptr<T> share_from_rank_0(World& world, const Make& make) {
  std::shared_ptr<T> shared;
  if (world.rank().value == 0) shared = make();
  const std::shared_ptr<T>* mine = &shared;
  const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  const std::shared_ptr<T>* first = nullptr;
  std::memcpy(&first, all[0].data(), sizeof(first));
  if (world.rank().value != 0) shared = *first;
  world.barrier();  // rank 0's pointer must live until all have copied it
  return shared;
}

}  // namespace shunt::bench
