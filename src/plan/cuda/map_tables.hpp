// Converts an expert map to the tables that kernels read.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cuda/map_tables.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt::device {

class MapWords {
 public:
  /// flat: rows are summed by ascending logical expert; otherwise along the reduction tree.
  MapWords(const ExpertMap& map, const Topology& topology, bool flat);

  [[nodiscard]] const std::vector<std::int32_t>& words() const { return words_; }
  /// The tables, given the device address of a copy of words(), aligned to 16 bytes.
  [[nodiscard]] MapTables at(const std::int32_t* device) const;

 private:
  template <class T>
  void add(const std::vector<T>& table);

  std::int32_t num_experts_;
  std::int32_t num_physical_;
  std::int32_t num_ranks_;
  std::vector<std::int32_t> words_;
  std::vector<std::size_t> begins_;  // first word of each table
};

}  // namespace shunt::device
