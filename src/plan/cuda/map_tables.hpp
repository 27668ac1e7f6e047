// An expert map as kernels read it.
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt::device {

/// Device pointers into one array of words; MapWords makes it.
struct MapTables {
  std::int32_t num_experts;
  std::int32_t num_physical;
  std::int32_t num_ranks;
  const std::int32_t* only_copy;      ///< [experts]: physical; −1 where there are several
  const std::int32_t* copies_begin;   ///< [experts + 1]
  const std::int32_t* copies;         ///< physical experts, by logical expert
  const std::int32_t* rank_of;        ///< [physical experts]
  const std::int32_t* key_of;         ///< [physical experts]: a token's rows are summed by ascending key
  const std::int32_t* first_of_rank;  ///< [ranks + 1]
  const std::int32_t* node_of;        ///< [ranks]

  /// What tokens are counted by: rows per physical expert, then tokens per rank.
  [[nodiscard]] constexpr std::int32_t num_columns() const { return num_physical + num_ranks; }
};

class MapWords {
 public:
  /// `flat`: rows are summed by ascending logical expert, else along the tree.
  MapWords(const ExpertMap& map, const Topology& topology, bool flat);

  [[nodiscard]] const std::vector<std::int32_t>& words() const { return words_; }
  /// Where the words lie on the device.
  [[nodiscard]] MapTables at(const std::int32_t* device) const;

 private:
  std::int32_t num_experts_;
  std::int32_t num_physical_;
  std::int32_t num_ranks_;
  std::vector<std::int32_t> words_;
  std::vector<std::size_t> begins_;  // of the tables
};

}  // namespace shunt::device
