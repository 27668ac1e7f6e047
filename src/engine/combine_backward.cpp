#include "engine/combine_backward.hpp"

#include "kernels/dot.hpp"
#include "kernels/scale.hpp"

namespace shunt {

void CombineBackward::begin(std::span<const Announcement> peers) {
  const auto hidden = static_cast<std::size_t>(in_.grad_out.cols);
  const std::size_t row_bytes = hidden * size_of(in_.expert_dtype);
  std::vector<std::byte*> gradients_of;
  std::vector<const std::byte*> expert_out_of;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const std::size_t bytes = static_cast<std::size_t>(plan().rows_of_rank[rank]) * row_bytes;
    gradients_of.push_back(announced_block(RankId(rank), peers[rank], bytes));
    expert_out_of.push_back(in_.grad_weights ? peer_block(RankId(rank), peers[rank].second_offset, bytes) : nullptr);
  }

  const Store store = store_for(plan().targets.size() * row_bytes);
  for (std::int64_t token = 0; token < plan().num_tokens; ++token) {
    const std::byte* gradient = in_.grad_out.row(token);
    for (const Target& target : plan().targets_of(token)) {
      const std::size_t offset = target.slot.index() * row_bytes;
      if (in_.grad_weights)
        in_.grad_weights[token * plan().topk + target.choice] =
            dot(gradient, in_.grad_out.dtype, expert_out_of[target.rank.index()] + offset, in_.expert_dtype, hidden);
      scale_row(gradient, in_.grad_out.dtype, target.weight, hidden, gradients_of[target.rank.index()] + offset,
                in_.expert_dtype, store);
    }
  }
  zero_padding(plan(), in_.output.data, row_bytes);
  // Partner: the release of the `done` signal that follows.
  flush_streaming();
}

}  // namespace shunt
