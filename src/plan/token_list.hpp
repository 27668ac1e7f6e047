// What receivers in `token_unique` can't derive from counts: the experts of each token on this rank, and its weights;
// and the index maps made of them.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/counts.hpp"
#include "plan/demand.hpp"
#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"

namespace shunt {

/// One source's tokens for one rank, ascending.
class TokenList {
 public:
  TokenList(std::size_t num_tokens, std::size_t num_entries)
      : num_tokens_(num_tokens), num_entries_(num_entries), words_(num_tokens + 2 * num_entries) {}

  /// [tokens]
  [[nodiscard]] std::span<const std::uint32_t> entries_per_token() const {
    return std::span(words_).subspan(0, num_tokens_);
  }
  /// [entries]: the receiver's local experts, ascending within a token.
  [[nodiscard]] std::span<const std::uint32_t> experts() const {
    return std::span(words_).subspan(num_tokens_, num_entries_);
  }
  [[nodiscard]] float weight(std::size_t entry) const {
    return std::bit_cast<float>(words_[num_tokens_ + num_entries_ + entry]);
  }

  /// The list in wire format: entries per token, experts, weights.
  [[nodiscard]] std::span<std::uint32_t> words() { return words_; }

 private:
  std::size_t num_tokens_;
  std::size_t num_entries_;
  std::vector<std::uint32_t> words_;
};

/// Position and size, in words, of one rank's list among a source's lists; follows from the source's counts.
struct ListExtent {
  std::uint64_t begin = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_entries = 0;

  [[nodiscard]] std::uint64_t end() const { return begin + num_tokens + 2 * num_entries; }
};

/// One extent per rank.
std::vector<ListExtent> list_extents(const SourceCounts& counts, const ExpertMap& map);

/// Writes the lists for all ranks. `words` must be zeroed and extend to the last extent's end.
void write_lists(std::span<std::uint32_t> words, std::span<const ListExtent> extents, const Demand& demand,
                 const Routing& routing, const ExpertMap& map);

/// Throws PeerError unless write_lists could have made the list that `source` sent to `self`. rows: the source's counts
/// for this rank's experts.
void check_list(const TokenList& list, std::span<const std::uint32_t> rows, std::uint64_t topk, RankId source,
                RankId self);

/// lists: all sources' lists for this rank, in rank order. Reads topk, num_expert_rows, expert_offsets and rows_of_rank
/// of the plan; fills its unique_… and …_of_unique arrays.
void fill_unique_maps(PlanData& plan, std::span<const TokenList> lists);

}  // namespace shunt
