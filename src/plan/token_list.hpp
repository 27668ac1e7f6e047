// What receivers of `token_unique` can't derive from counts: which of their experts each token wants, and its weights.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/counts.hpp"
#include "plan/demand.hpp"
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

  /// The list as it travels: entries per token, experts, weights.
  [[nodiscard]] std::span<std::uint32_t> words() { return words_; }

 private:
  std::size_t num_tokens_;
  std::size_t num_entries_;
  std::vector<std::uint32_t> words_;
};

/// Where the list for a rank stands among a source's lists; follows from the source's counts. In words.
struct ListExtent {
  std::uint64_t begin = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t num_entries = 0;

  [[nodiscard]] std::uint64_t end() const { return begin + num_tokens + 2 * num_entries; }
};

/// [ranks]
std::vector<ListExtent> list_extents(const SourceCounts& counts, const ExpertMap& map);

/// Writes the lists for all ranks; `words` is zero and has room for the last extent's end.
void write_lists(std::span<std::uint32_t> words, std::span<const ListExtent> extents, const Demand& demand,
                 const Routing& routing, const ExpertMap& map);

/// Throws PeerError unless the list that `source` sent to `self` is one that write_lists could have made.
/// `rows` is what the source counts for each of this rank's experts.
void check_list(const TokenList& list, std::span<const std::uint32_t> rows, std::uint64_t topk, RankId source,
                RankId self);

}  // namespace shunt
