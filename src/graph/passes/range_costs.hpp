// Simulated times of ranges of blocks, split into parts. Ranges of equal blocks are simulated once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/list_schedule.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/pass.hpp"
#include "graph/split.hpp"

namespace shunt::graph {

/// How far the parts of a range extend in the backward pass: the shuffle and its experts are always split as in the
/// forward pass.
enum class BackwardReach : std::uint8_t { shuffle, range };

/// A range of blocks [begin, end) in `parts` parts.
struct Cut {
  std::int32_t begin = 0, end = 0;
  std::int32_t parts = 1;
  BackwardReach backward = BackwardReach::range;
};

/// By op: the number of parts that these cuts split it into.
std::vector<std::int32_t> parts_of_ops(const Graph& graph, const Blocks& blocks, const std::vector<Cut>& cuts);

class RangeCosts {
 public:
  RangeCosts(const Graph& graph, const Blocks& blocks, const CostModel& cost);

  /// Forward and backward time of the range; cut.parts is at most most_parts(graph).
  [[nodiscard]] double seconds(const Cut& cut);

 private:
  /// The step with every block split alike.
  struct Variant {
    Program program;
    std::vector<Priority> priorities;
    std::vector<std::vector<TaskId>> forward, backward;  // by block
  };
  const Variant& variant(std::int32_t parts, BackwardReach reach);
  double simulate_range(const Variant& variant, const std::vector<std::vector<TaskId>>& by_block, const Cut& cut) const;
  [[nodiscard]] std::string key_of(const Cut& cut) const;
  void name_equal_blocks();

  const Graph& graph_;
  const Blocks& blocks_;
  const CostModel& cost_;
  std::map<std::pair<std::int32_t, BackwardReach>, Variant> variants_;
  std::vector<std::int32_t> block_type_;  // equal for equal blocks
  std::map<std::string, double> known_;
};

}  // namespace shunt::graph
