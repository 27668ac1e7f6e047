// The passes, in files of their own; pass.hpp has the runner.
#pragma once

#include "graph/passes/pass.hpp"
#include "graph/passes/range_costs.hpp"

namespace shunt::graph {

/// Moves weight gradients behind exposed all-to-alls (Lancet, section 4). The gaps are what each all-to-all exposes
/// when every weight gradient waits until the end. A weight gradient may fill the gap of any all-to-all that is
/// launched after its operands exist. Assigns greedily first, then by an exact search that starts from that; the gap to
/// the proven bound goes into the context. Also tries weight gradients in pieces that fit.
Graph schedule_weight_gradients(const Graph& graph, PassContext& context);

/// Interleaves two micro-batches, the first's backward with the second's forward (as DualPipe and Megatron-Core do):
/// splits the whole step, as it was before any pass, into two micro-batches of one or more parts each; the first
/// precedes the second. The runner chooses between this and the result of partition. Returns the graph unchanged unless
/// the context requests it.
Graph interleave(const Graph& graph, PassContext& context);

/// Splits ranges of blocks along the batch and pipelines their parts, forward and backward (Lancet, section 5, whose
/// backward is never split). Dynamic programming over blocks with simulated times selects ranges and numbers of parts;
/// simulating the whole step selects the order of parts, and whether one range over everything is better. Only results
/// within the memory cap count. Returns the graph unchanged if it has no batch or no plan, or if nothing helps.
Graph partition(const Graph& graph, PassContext& context);

/// The ranges that partition compares, by simulated time: cuts of the whole step, the best by dynamic programming
/// first. Empty if there is nothing to cut.
std::vector<std::vector<Cut>> ranges_to_try(const Graph& graph, const PassContext& context,
                                            const std::vector<BackwardReach>& reaches);

/// Lancet's placement alone: best fit, whole weight gradients.
Graph place_weight_gradients_greedily(const Graph& graph, const PassContext& context);

/// Places reductions of gradients where the links are idle. Tries, by simulation: the given positions; behind the last
/// all-to-all; and each reduction in the first gap of the links that is long enough for it.
Graph place_reductions(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
