#include "graph/passes/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/passes/blocks.hpp"
#include "graph/passes/pipeline.hpp"
#include "graph/passes/range_costs.hpp"
#include "graph/split.hpp"

namespace shunt::graph {
namespace {

constexpr std::int32_t kParts[] = {2, 3, 4, 6, 8};
constexpr std::int32_t kMostShufflesInRange = 3;  // longer ranges are repetitions; the longest of all is tried as well

struct Best {
  double seconds = std::numeric_limits<double>::infinity();
  Cut cut;
};

/// T(n) = min over i and k of T(i) + P(i, n, k), as in Lancet's section 5.3; P covers forward and backward.
std::vector<Cut> choose_ranges(const Blocks& blocks, RangeCosts& costs, const std::vector<std::int32_t>& numbers,
                               const std::vector<BackwardReach>& reaches) {
  std::vector<Best> best(static_cast<std::size_t>(blocks.count) + 1);
  best[0].seconds = 0;
  const auto consider = [&](const Cut& cut) {
    Best& end = best[static_cast<std::size_t>(cut.end)];
    const double total = best[static_cast<std::size_t>(cut.begin)].seconds + costs.seconds(cut);
    if (total < end.seconds) end = {total, cut};
  };
  for (std::int32_t end = 1; end <= blocks.count; ++end) {
    consider({end - 1, end, 1, BackwardReach::range});
    std::int32_t shuffles = 0;
    for (std::int32_t begin = end - 1; begin >= 0; --begin) {
      shuffles += blocks.has_plan[static_cast<std::size_t>(begin)];
      if (shuffles == 0) continue;
      const bool is_everything = begin == 0 && end == blocks.count;
      if (shuffles > kMostShufflesInRange && !is_everything) continue;
      for (const std::int32_t parts : numbers)
        for (const BackwardReach reach : reaches) consider({begin, end, parts, reach});
    }
  }
  std::vector<Cut> cuts;
  for (std::int32_t end = blocks.count; end > 0; end = cuts.back().begin)
    cuts.push_back(best[static_cast<std::size_t>(end)].cut);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

struct Candidate {
  std::vector<Cut> cuts;
  Ordered pipeline;
};

/// The layers whose ops a range of blocks contains, for human readers.
std::string layers_of(const Graph& graph, const Blocks& blocks, const Cut& cut) {
  std::int32_t first = std::numeric_limits<std::int32_t>::max(), last = -1;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const std::int32_t layer = graph.op(OpId(i)).origin.layer;
    if (blocks.of_op[i] < cut.begin || blocks.of_op[i] >= cut.end || layer < 0) continue;
    first = std::min(first, layer);
    last = std::max(last, layer);
  }
  const std::string layers =
      first == last ? fmt::format("inside layer {}", first) : fmt::format("layers {} to {}", first, last);
  return layers + (cut.begin == 0 ? ", embedding" : "") + (cut.end == blocks.count ? ", head" : "");
}

void note_layers(const Graph& graph, const Blocks& blocks, const Candidate& chosen, RangeCosts& costs,
                 PassContext& context) {
  for (const Cut& cut : chosen.cuts) {
    double uncut = 0;
    for (std::int32_t block = cut.begin; block < cut.end; ++block)
      uncut += costs.seconds({block, block + 1, 1, BackwardReach::range});
    const std::string what =
        most_parts(graph) == 1 ? std::string("can't be cut: parts are whole sequences, and a rank has one")
        : cut.parts == 1
            ? fmt::format("not cut: no range around it is faster than {:.2f} ms", uncut * 1e3)
            : fmt::format("{} in {} parts: {:.2f} ms instead of {:.2f}, forward and backward; backward {}",
                          layers_of(graph, blocks, cut), cut.parts, costs.seconds(cut) * 1e3, uncut * 1e3,
                          cut.backward == BackwardReach::range ? "mirrors forward" : "cuts shuffle and experts only");
    for (std::int32_t block = cut.begin; block < cut.end; ++block)
      if (blocks.has_plan[static_cast<std::size_t>(block)])
        context.notes.push_back({blocks.moe_layer[static_cast<std::size_t>(block)], what});
  }
}

bool can_be_cut(const Graph& graph, const Blocks& blocks) {
  return std::count(blocks.has_plan.begin(), blocks.has_plan.end(), true) > 0 && !is_split(graph);
}

std::vector<std::vector<Cut>> ranges_to_try(const Graph& graph, const Blocks& blocks, RangeCosts& costs,
                                            const std::vector<BackwardReach>& reaches) {
  const std::int64_t most = most_parts(graph);
  std::vector<std::int32_t> numbers;
  std::copy_if(std::begin(kParts), std::end(kParts), std::back_inserter(numbers),
               [&](std::int32_t parts) { return parts <= most; });
  std::vector<std::vector<Cut>> plans = {choose_ranges(blocks, costs, numbers, reaches), {}};
  for (const std::int32_t parts : numbers)
    for (const BackwardReach reach : reaches) plans.push_back({{0, blocks.count, parts, reach}});
  return plans;
}

}  // namespace

std::vector<std::vector<Cut>> ranges_to_try(const Graph& graph, const PassContext& context,
                                            const std::vector<BackwardReach>& reaches) {
  const Blocks blocks = find_blocks(graph);
  if (!can_be_cut(graph, blocks)) return {};
  RangeCosts costs(graph, blocks, context.cost);
  return ranges_to_try(graph, blocks, costs, reaches);
}

Graph partition(const Graph& graph, PassContext& context) {
  const Blocks blocks = find_blocks(graph);
  if (!can_be_cut(graph, blocks)) return graph;
  RangeCosts costs(graph, blocks, context.cost);
  std::optional<Candidate> best;
  for (const std::vector<Cut>& cuts :
       ranges_to_try(graph, blocks, costs, {BackwardReach::shuffle, BackwardReach::range})) {
    const SplitGraph cut = split(graph, parts_of_ops(graph, blocks, cuts));
    for (const std::int32_t window : {1, 2, 8}) {
      Candidate candidate{cuts, pipelined(cut, context, window)};
      if (!best || is_better(candidate.pipeline.outcome, best->pipeline.outcome, context.memory_cap_bytes))
        best = std::move(candidate);
    }
  }
  note_layers(graph, blocks, *best, costs, context);
  return std::move(best->pipeline.graph);
}

}  // namespace shunt::graph
