// Chooses expert copies for many tokens at a time, with the results of CopyChoice (include/shunt/copy_choice.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/copy_choice.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Processes expert by expert over all tokens of a batch. This is the order that the rule demands within a token, and
/// no branch depends on the number of a token's experts that have several copies. Token by token, a plan took up to
/// twice as long (bench_plan).
template <class Needed>
class BatchCopies {
  static constexpr std::uint32_t kMaxTokens = 256;  // few enough for the cache
  static constexpr std::uint32_t kNone = 0xffff'ffffu;

  /// An entry's index and its token's index in one word, both relative to the batch.
  using Place = std::uint32_t;
  static constexpr int kEntryBits = 16;
  static_assert(kMaxTokens * Routing::kMaxTopK <= 1u << kEntryBits && kMaxTokens <= 1u << (32 - kEntryBits));
  [[nodiscard]] std::uint32_t entry_of(Place place) const { return first_entry_ + (place & ((1u << kEntryBits) - 1)); }

  struct Mention {
    Place place;
    std::uint32_t before;  // previous mention of the same expert, or kNone
  };
  struct Token {
    Needed needed;
    std::uint32_t hash;
  };

 public:
  BatchCopies(const ExpertMap& map, const Topology& topology, RankId self, std::int32_t topk)
      : arrays_(map, topology),
        self_(self.value),
        new_token_{Needed(topology.node(self).value), 0},
        last_mentions_(arrays_.experts.size(), kNone) {
    for (std::size_t id = 0; id < arrays_.experts.size(); ++id) {
      if (arrays_.experts[id].only_copy >= 0) continue;
      const auto copies = copies_of(static_cast<std::int32_t>(id));
      several_.push_back({static_cast<std::int32_t>(id),
                          copies.size() == 2 ? std::optional(TwoCopies(copies.data(), self_)) : std::nullopt});
    }
    mentions_ = std::make_unique_for_overwrite<Mention[]>(kMaxTokens * static_cast<std::size_t>(topk) + 1);
  }

  /// What add() reads about an expert; stored by the caller.
  struct Expert {
    Needed needed;  // empty if there are several copies
    std::uint32_t hash;
    std::uint32_t has_several;  // 0 or 1
  };
  [[nodiscard]] Expert expert(std::int32_t id) const {
    const CopyTables::Expert& known = arrays_.experts[static_cast<std::size_t>(id)];
    Expert expert{Needed(), known.hash, known.only_copy < 0 ? 1u : 0u};
    if (expert.has_several == 0) expert.needed.add(known.rank, known.node);
    return expert;
  }

  /// Accepts tokens until it is full. Owns nothing, so that it can stay in registers.
  class Batch {
   public:
    void begin_token() { token_ = new_token_; }

    /// Adds one of the token's experts; choose() passes `entry` to its callback.
    void add(const Expert& expert, std::int32_t id, std::uint32_t entry) {
      token_.needed.add(expert.needed);
      token_.hash += expert.hash;
      // Written for an expert with one copy too, which avoids a branch; the next mention overwrites it.
      mentions_[num_mentions_].place = zeroth_place_ + entry;
      mentions_[num_mentions_].before = std::exchange(last_mentions_[id], num_mentions_);
      num_mentions_ += expert.has_several;
    }

    void end_token() {
      *next_token_++ = token_;
      zeroth_place_ += 1u << kEntryBits;
    }
    [[nodiscard]] bool is_full() const { return next_token_ == end_; }

   private:
    friend BatchCopies;
    Token new_token_, token_;
    Token *next_token_, *end_;
    Mention* mentions_;
    std::uint32_t* last_mentions_;
    std::uint32_t num_mentions_, zeroth_place_;
  };
  /// first_entry: index of the first token's first entry.
  [[nodiscard]] Batch new_batch(std::uint32_t first_entry) {
    Batch batch;
    batch.new_token_ = new_token_;
    batch.next_token_ = tokens_.data();
    batch.end_ = tokens_.data() + kMaxTokens;
    batch.mentions_ = mentions_.get();
    batch.last_mentions_ = last_mentions_.data();
    batch.num_mentions_ = 0;
    batch.zeroth_place_ = -first_entry;
    first_entry_ = first_entry;
    return batch;
  }

  /// Calls use(entry, physical expert) for all entries of the batch whose expert has several copies.
  template <class Use>
  void choose(const Use& use) {
    for (const auto& [id, two] : several_) {
      if (two) {
        choose_expert(id, use,
                      [&two = *two](std::uint32_t drawn, const Needed& needed) { return two.choose(drawn, needed); });
      } else {
        choose_expert(id, use, [this, copies = copies_of(id)](std::uint32_t drawn, const Needed& needed) {
          return choose_copy(copies.data(), static_cast<std::int32_t>(copies.size()), drawn, self_, needed);
        });
      }
    }
  }

 private:
  struct Several {
    std::int32_t id;
    std::optional<TwoCopies> two;
  };

  [[nodiscard]] std::span<const CopyTables::Copy> copies_of(std::int32_t id) const {
    const auto begin = static_cast<std::size_t>(arrays_.copies_begin[static_cast<std::size_t>(id)]);
    const auto end = static_cast<std::size_t>(arrays_.copies_begin[static_cast<std::size_t>(id) + 1]);
    return std::span(arrays_.copies).subspan(begin, end - begin);
  }

  template <class Use, class Choose>
  void choose_expert(std::int32_t id, const Use& use, const Choose& choose) {
    std::uint32_t next = std::exchange(last_mentions_[static_cast<std::size_t>(id)], kNone);
    while (next != kNone) {
      const Mention mention = mentions_[next];
      next = mention.before;
      Token& token = tokens_[mention.place >> kEntryBits];
      const CopyTables::Copy copy = choose(draw(token.hash, id), token.needed);
      token.needed.add(copy.rank, copy.node);
      use(entry_of(mention.place), PhysicalId(copy.physical));
    }
  }

  CopyArrays arrays_;
  std::int32_t self_;
  Token new_token_;
  std::vector<Several> several_;              // the experts with several copies, ascending
  std::vector<std::uint32_t> last_mentions_;  // by expert; those of experts with one copy are not read
  std::unique_ptr<Mention[]> mentions_;       // of experts with several copies, by token; one spare element
  std::vector<Token> tokens_ = std::vector<Token>(kMaxTokens, new_token_);
  std::uint32_t first_entry_ = 0;  // first entry of the batch
};

/// Replaces BatchCopies if every expert has one copy.
struct NoCopies {
  struct Expert {};
  struct Batch {
    static void begin_token() {}
    static void add(const Expert& /*expert*/, std::int32_t /*id*/, std::uint32_t /*entry*/) {}
    static void end_token() {}
    [[nodiscard]] static bool is_full() { return false; }
  };
  [[nodiscard]] static Expert expert(std::int32_t /*id*/) { return {}; }
  [[nodiscard]] static Batch new_batch(std::uint32_t /*first_entry*/) { return {}; }
  template <class Use>
  static void choose(const Use& /*use*/) {}
};

}  // namespace shunt
