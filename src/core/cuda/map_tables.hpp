// An expert map in the form that kernels read.
#pragma once

#include <cstdint>

#include "core/copy_choice.hpp"

namespace shunt::device {

/// Device pointers into one array of words; plan/cuda/map_tables.hpp makes it.
struct MapTables {
  std::int32_t num_experts;
  std::int32_t num_physical;
  std::int32_t num_ranks;
  const std::int32_t* only_copy;      ///< [experts]: physical; −1 if there are several
  const std::int32_t* physical;       ///< [physical experts]: 0, 1, …
  const std::int32_t* rank_of;        ///< [physical experts]
  const std::int32_t* key_of;         ///< [physical experts]: a token's rows are summed by ascending key
  const std::int32_t* first_of_rank;  ///< [ranks + 1]
  const std::int32_t* node_of;        ///< [ranks]
  CopyTables copies;                  ///< for experts that have several

  [[nodiscard]] constexpr bool has_replicas() const { return num_physical > num_experts; }
  /// The same map for routings that name physical experts: each is its own only copy.
  [[nodiscard]] constexpr MapTables of_copies() const {
    MapTables tables = *this;
    tables.num_experts = num_physical;
    tables.only_copy = physical;
    return tables;
  }
  /// Columns of the counts: rows per physical expert, then tokens per rank.
  [[nodiscard]] constexpr std::int32_t num_columns() const { return num_physical + num_ranks; }
};

}  // namespace shunt::device
