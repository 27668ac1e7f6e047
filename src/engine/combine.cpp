#include "engine/combine.hpp"

#include <array>

#include "shunt/routing.hpp"

namespace shunt {

void Combine::begin(std::span<const Announcement> peers) {
  const std::size_t row_bytes = static_cast<std::size_t>(in_.hidden) * size_of(in_.format.terms);
  std::vector<const std::byte*> rows_of;
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    rows_of.push_back(
        announced_block(RankId(rank), peers[rank], static_cast<std::size_t>(plan().rows_of_rank[rank]) * row_bytes));

  const Store store = store_for(in_.out.bytes());
  std::array<Term, Routing::kMaxTopK> terms;
  for (std::int64_t token = 0; token < plan().num_tokens; ++token) {
    const auto targets = plan().targets_of(token);
    for (std::size_t i = 0; i < targets.size(); ++i)
      terms[i] = {rows_of[targets[i].rank.index()] + targets[i].slot.index() * row_bytes,
                  in_.weighted ? targets[i].weight : 1.0f, closes(targets, i)};
    reduce_row(std::span(terms.data(), targets.size()), static_cast<std::size_t>(in_.hidden), in_.format,
               in_.out.row(token), store);
  }
  // The result is read by other threads of this rank; partner: the release of the operation's state.
  flush_streaming();
}

Closes Combine::closes(std::span<const Target> targets, std::size_t i) const {
  const bool last = i + 1 == targets.size();
  if (in_.reduction == Reduction::flat) return last ? Closes::node : Closes::nothing;
  const Topology& topology = plan().topology;
  const NodeId node = topology.node(targets[i].rank);
  if (last || topology.node(targets[i + 1].rank) != node)
    return node == topology.node(plan().self) ? Closes::node : Closes::remote_node;
  return targets[i + 1].rank != targets[i].rank ? Closes::rank : Closes::nothing;
}

}  // namespace shunt
