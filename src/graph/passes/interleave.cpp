#include "graph/passes/passes.hpp"

#include <fmt/format.h>

#include <optional>

#include "graph/passes/blocks.hpp"
#include "graph/passes/pipeline.hpp"
#include "graph/passes/range_costs.hpp"
#include "graph/split.hpp"

namespace shunt::graph {
namespace {

constexpr std::int32_t kPartsOfMicroBatch[] = {1, 2, 4};

SplitGraph in_micro_batches(const Graph& graph, const Blocks& blocks, std::int32_t parts_of_each) {
  SplitGraph cut =
      split(graph, parts_of_ops(graph, blocks, {{0, blocks.count, 2 * parts_of_each, BackwardReach::range}}));
  for (std::size_t i = 0; i < cut.part.size(); ++i) {
    Origin origin = cut.graph.op(OpId(i)).origin;
    origin.micro_batch = cut.part[i] / parts_of_each;
    cut.graph.set_origin(OpId(i), origin);
  }
  return cut;
}

}  // namespace

Graph interleave(const Graph& given, PassContext& context) {
  const Graph& graph = context.step ? *context.step : given;
  if (!context.interleaves_micro_batches || is_split(graph)) return given;
  const std::int64_t most = most_parts(graph);
  const Blocks blocks = find_blocks(graph);
  std::optional<Ordered> best;
  std::int32_t best_parts = 0;
  for (const std::int32_t parts : kPartsOfMicroBatch) {
    if (2 * parts > most) continue;
    Ordered candidate = pipelined(in_micro_batches(graph, blocks, parts), context, parts);
    if (best && !is_better(candidate.outcome, best->outcome, context.memory_cap_bytes)) continue;
    best = std::move(candidate);
    best_parts = parts;
  }
  if (!best) return given;
  for (std::size_t block = 0; block < blocks.has_plan.size(); ++block)
    if (blocks.has_plan[block])
      context.notes.push_back(
          {blocks.moe_layer[block],
           fmt::format(
               "two micro-batches of {} parts each, as the model asks; forward of one against backward of the other",
               best_parts)});
  return std::move(best->graph);
}

}  // namespace shunt::graph
