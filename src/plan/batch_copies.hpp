// Chooses copies for many tokens at a time, as CopyChoice does for one (include/shunt/copy_choice.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/copy_choice.hpp"
#include "core/copy_tables.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Expert by expert over all tokens: that is the order the rule asks for within a token, and no branch depends on how
/// many experts with several copies a token names. Token by token takes three times as long (bench_plan).
template <class Needed>
class BatchCopies {
 public:
  static constexpr std::uint32_t kMaxTokens = 128;  ///< few enough to stay in the cache

  BatchCopies(const ExpertMap& map, const Topology& topology, RankId self)
      : arrays_(map, topology), self_(self.value), new_token_{Needed(topology.node(self).value), 0} {
    for (const CopyTables::Expert& known : arrays_.experts) {
      Expert& expert = experts_.emplace_back();
      expert.hash = known.hash;
      expert.has_several = known.only_copy < 0;
      if (!expert.has_several) expert.needed.add(known.rank, known.node);
      expert.first_mention = num_several_ * kMaxTokens;
      num_several_ += expert.has_several ? 1 : 0;
    }
    for (Expert& expert : experts_) {
      if (!expert.has_several) expert.first_mention = num_several_ * kMaxTokens;  // written, never read
      expert.next_mention = expert.first_mention;
    }
    mentions_ = std::make_unique_for_overwrite<Mention[]>(num_several_ * kMaxTokens + 1);
  }

  /// What a token's experts come to.
  struct Token {
    Needed needed;
    std::uint32_t hash;
  };
  [[nodiscard]] Token new_token() const { return new_token_; }

  /// One of the token's experts; `entry` is what choose() calls it.
  void add(Token& token, std::int32_t id, std::uint32_t entry) {
    Expert& expert = experts_[static_cast<std::size_t>(id)];
    token.needed.add(expert.needed);
    token.hash += expert.hash;
    mentions_[expert.next_mention] = {num_tokens_, entry};
    expert.next_mention += expert.has_several ? 1 : 0;
  }

  void end(const Token& token) { tokens_[num_tokens_++] = token; }
  [[nodiscard]] bool is_full() const { return num_tokens_ == kMaxTokens; }

  /// Calls use(entry, physical expert) for all entries whose expert has several copies. Then all tokens are forgotten.
  template <class Use>
  void choose(const Use& use) {
    for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
      if (!experts_[expert].has_several) continue;
      const CopyTables::Copy* const copies = &arrays_.copies[static_cast<std::size_t>(arrays_.copies_begin[expert])];
      const std::int32_t num_copies = arrays_.copies_begin[expert + 1] - arrays_.copies_begin[expert];
      if (num_copies == 2) {
        const CopyTables::Copy both[2]{copies[0], copies[1]};  // in registers, as nothing can write to them
        choose_expert(expert, both, 2, use);
      } else {
        choose_expert(expert, copies, num_copies, use);
      }
      experts_[expert].next_mention = experts_[expert].first_mention;
    }
    num_tokens_ = 0;
  }

 private:
  struct Expert {
    Needed needed;  // nothing where there are several copies
    std::uint32_t hash;
    bool has_several;
    std::size_t first_mention, next_mention;
  };
  struct Mention {
    std::uint32_t token, entry;
  };

  template <class Use>
  [[gnu::always_inline]] void choose_expert(std::size_t expert, const CopyTables::Copy* copies, std::int32_t num_copies,
                                            const Use& use) {
    const std::size_t end = experts_[expert].next_mention;
    for (std::size_t i = experts_[expert].first_mention; i < end; ++i) {
      Token& token = tokens_[mentions_[i].token];
      const std::uint32_t drawn = draw(token.hash, static_cast<std::int32_t>(expert));
      const CopyTables::Copy& copy = choose_copy(copies, num_copies, drawn, self_, token.needed);
      token.needed.add(copy.rank, copy.node);
      use(mentions_[i].entry, PhysicalId(copy.physical));
    }
  }

  CopyArrays arrays_;
  std::int32_t self_;
  Token new_token_;
  std::vector<Expert> experts_;
  std::size_t num_several_ = 0;
  std::unique_ptr<Mention[]> mentions_;  // [experts with several copies, kMaxTokens], by expert
  std::vector<Token> tokens_ = std::vector<Token>(kMaxTokens, new_token_);
  std::uint32_t num_tokens_ = 0;
};

/// For maps where every expert has one copy: nothing to choose.
struct NoCopies {
  struct Token {};
  [[nodiscard]] static Token new_token() { return {}; }
  static void add(Token /*token*/, std::int32_t /*id*/, std::uint32_t /*entry*/) {}
  static void end(Token /*token*/) {}
  [[nodiscard]] static bool is_full() { return false; }
  template <class Use>
  static void choose(const Use& /*use*/) {}
};

}  // namespace shunt
