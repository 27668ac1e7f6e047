// Chooses copies for many tokens at a time, as CopyChoice does for one (include/shunt/copy_choice.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/copy_choice.hpp"
#include "core/copy_tables.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Expert by expert over all tokens: that is the order the rule asks for within a token, and no branch depends on how
/// many experts with several copies a token names. Token by token, a plan took up to twice as long (bench_plan).
template <class Needed>
class BatchCopies {
 public:
  BatchCopies(const ExpertMap& map, const Topology& topology, RankId self, std::int32_t topk)
      : arrays_(map, topology), self_(self.value), new_token_{Needed(topology.node(self).value), 0, 0, 0} {
    for (std::size_t id = 0; id < arrays_.experts.size(); ++id) {
      if (arrays_.experts[id].only_copy >= 0) continue;
      ends_.push_back(begin_of(several_.size()));
      several_.push_back(static_cast<std::int32_t>(id));
    }
    mentions_ = std::make_unique_for_overwrite<Place[]>(kMaxTokens * static_cast<std::size_t>(topk) + 1);
    by_expert_ = std::make_unique_for_overwrite<Place[]>(begin_of(several_.size()));
  }

  /// What add() needs to know of an expert; the caller keeps it with what else it needs.
  struct Expert {
    Needed needed;  // nothing where there are several copies
    std::uint32_t hash;
    std::uint32_t has_several;  // 0 or 1
  };
  [[nodiscard]] Expert expert(std::int32_t id) const {
    const CopyTables::Expert& known = arrays_.experts[static_cast<std::size_t>(id)];
    Expert expert{Needed(), known.hash, known.only_copy < 0 ? 1u : 0u};
    if (expert.has_several == 0) expert.needed.add(known.rank, known.node);
    return expert;
  }
  /// Among those with several copies.
  [[nodiscard]] std::int32_t index_of(std::int32_t id) const {
    return static_cast<std::int32_t>(std::ranges::lower_bound(several_, id) - several_.begin());
  }

  /// What the experts of a token come to, while they are added.
  struct Token {
    Needed needed;
    std::uint32_t hash;
    // Kept here to stay in registers: how many mentions there are of all tokens, and the place of entry 0.
    std::uint32_t num_mentions, zeroth_place;
  };
  [[nodiscard]] Token new_token() const { return new_token_; }

  /// One of the token's experts; `entry` is what choose() calls it.
  void add(Token& token, const Expert& expert, std::uint32_t entry) {
    token.needed.add(expert.needed);
    token.hash += expert.hash;
    mentions_[token.num_mentions] = token.zeroth_place + entry;
    token.num_mentions += expert.has_several;
  }

  void end(const Token& token) {
    tokens_[num_tokens_++] = token;
    new_token_.num_mentions = token.num_mentions;
    new_token_.zeroth_place += 1u << kEntryBits;
  }
  [[nodiscard]] bool is_full() const { return num_tokens_ == kMaxTokens; }

  /// Calls use(entry, physical expert) for all entries whose expert has several copies; index_of_entry(entry) is
  /// index_of() this expert. Then all tokens are forgotten. The next one's entries begin with next_entry.
  template <class IndexOf, class Use>
  void choose(std::uint32_t next_entry, const IndexOf& index_of_entry, const Use& use) {
    for (std::uint32_t i = 0; i < new_token_.num_mentions; ++i) {
      const Place place = mentions_[i];
      by_expert_[ends_[index_of_entry(entry_of(place))]++] = place;
    }
    for (std::size_t i = 0; i < several_.size(); ++i) {
      const auto id = static_cast<std::size_t>(several_[i]);
      const CopyTables::Copy* const copies = &arrays_.copies[static_cast<std::size_t>(arrays_.copies_begin[id])];
      const std::int32_t num_copies = arrays_.copies_begin[id + 1] - arrays_.copies_begin[id];
      const std::span places(&by_expert_[begin_of(i)], ends_[i] - begin_of(i));
      if (num_copies == 2) {
        const CopyTables::Copy both[2]{copies[0], copies[1]};  // in registers, as nothing can write to them
        choose_expert(several_[i], places, both, 2, use);
      } else {
        choose_expert(several_[i], places, copies, num_copies, use);
      }
      ends_[i] = begin_of(i);
    }
    first_entry_ = next_entry;
    num_tokens_ = 0;
    new_token_.num_mentions = 0;
    new_token_.zeroth_place = -next_entry;
  }

 private:
  static constexpr std::uint32_t kMaxTokens = 256;  // few enough to stay in the cache

  /// Of an entry: its token and itself, both counted from the first that is not forgotten, in one word.
  using Place = std::uint32_t;
  static constexpr int kEntryBits = 16;
  static_assert(kMaxTokens * Routing::kMaxTopK <= 1u << kEntryBits && kMaxTokens <= 1u << (32 - kEntryBits));
  [[nodiscard]] std::uint32_t entry_of(Place place) const { return first_entry_ + (place & ((1u << kEntryBits) - 1)); }

  /// Where the places of an expert with several copies begin.
  static constexpr std::size_t begin_of(std::size_t several) { return several * kMaxTokens; }

  template <class Use>
  [[gnu::always_inline]] void choose_expert(std::int32_t id, std::span<const Place> places,
                                            const CopyTables::Copy* copies, std::int32_t num_copies, const Use& use) {
    for (const Place place : places) {
      Token& token = tokens_[place >> kEntryBits];
      const CopyTables::Copy& copy = choose_copy(copies, num_copies, draw(token.hash, id), self_, token.needed);
      token.needed.add(copy.rank, copy.node);
      use(entry_of(place), PhysicalId(copy.physical));
    }
  }

  CopyArrays arrays_;
  std::int32_t self_;
  Token new_token_;
  std::vector<std::int32_t> several_;   // experts with several copies, ascending
  std::unique_ptr<Place[]> mentions_;   // of these, by token, and one more that is overwritten
  std::unique_ptr<Place[]> by_expert_;  // [several, kMaxTokens]: the same by expert
  std::vector<std::size_t> ends_;       // [several]: in by_expert_
  std::vector<Token> tokens_ = std::vector<Token>(kMaxTokens, new_token_);
  std::uint32_t num_tokens_ = 0;
  std::uint32_t first_entry_ = 0;  // of these tokens
};

/// For maps where every expert has one copy: nothing to choose.
struct NoCopies {
  struct Expert {};
  struct Token {};
  [[nodiscard]] static Expert expert(std::int32_t /*id*/) { return {}; }
  [[nodiscard]] static Token new_token() { return {}; }
  static void add(Token /*token*/, const Expert& /*expert*/, std::uint32_t /*entry*/) {}
  static void end(Token /*token*/) {}
  [[nodiscard]] static bool is_full() { return false; }
  [[nodiscard]] static std::int32_t index_of(std::int32_t /*id*/) { return 0; }
  template <class IndexOf, class Use>
  static void choose(std::uint32_t /*next_entry*/, const IndexOf& /*index_of_entry*/, const Use& /*use*/) {}
};

}  // namespace shunt
