// An expert map and its topology as the rule of choosing copies reads them (core/copy_choice.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Views of arrays. What is read together lies together.
struct CopyTables {
  struct alignas(16) Expert {
    std::int32_t only_copy;  ///< physical; −1 where there are several, which have no common rank and node
    std::int32_t rank;
    std::int32_t node;
    std::uint32_t hash;
  };
  struct alignas(16) Copy {
    std::int32_t physical;
    std::int32_t rank;
    std::int32_t node;
    std::int32_t share;
  };

  std::int32_t num_experts;
  const Expert* experts;             ///< [experts]
  const std::int32_t* copies_begin;  ///< [experts + 1]
  const Copy* copies;                ///< by expert, then rank
};

/// The arrays.
struct CopyArrays {
  CopyArrays(const ExpertMap& map, const Topology& topology);

  std::vector<CopyTables::Expert> experts;
  std::vector<std::int32_t> copies_begin;
  std::vector<CopyTables::Copy> copies;

  [[nodiscard]] CopyTables tables() const {
    return {static_cast<std::int32_t>(experts.size()), experts.data(), copies_begin.data(), copies.data()};
  }
};

}  // namespace shunt
