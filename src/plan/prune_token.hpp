// Pruning of one token. One source for CPUs and GPUs: it is constexpr, which nvcc compiles for both, so a test on the
// host tests the kernel's logic. Sums are rounded f32 additions in the order written here.
#pragma once

#include <bit>
#include <cstdint>

#include "core/copy_choice.hpp"
#include "shunt/routing.hpp"

namespace shunt {

/// Locations of experts by place: a rank or a node, depending on what the limit counts. PlaceWords makes the tables, in
/// host or device memory.
struct PlaceTables {
  std::int32_t num_experts;
  const std::int32_t* places_begin;   ///< [experts + 1]
  const std::int32_t* places;         ///< places of each expert, ascending, each once
  const std::int32_t* experts_begin;  ///< [places + 1]
  const std::int32_t* experts;        ///< experts of each place, ascending, each once

  [[nodiscard]] constexpr bool has(std::int32_t place, std::int32_t expert) const {
    for (std::int32_t i = places_begin[expert]; i < places_begin[expert + 1]; ++i)
      if (places[i] == place) return true;
    return false;
  }
};

/// How plans choose the copies that serve one rank's tokens. Without tables (no expert has several copies, or the rank
/// is unknown), an expert may be served at any of its places.
struct CopiesFromSource {
  CopyTables tables{0, nullptr, nullptr, nullptr};
  std::int32_t num_ranks = 0;
  std::int32_t source = 0;
  std::int32_t source_node = 0;
  bool places_are_nodes = false;

  [[nodiscard]] constexpr bool are_known() const { return tables.experts != nullptr; }
};

/// Pointers to host memory, or all to device memory. The pruned arrays must not overlap the others.
struct PruneArrays {
  const std::int32_t* experts;  ///< [tokens, topk]
  const float* weights;         ///< [tokens, topk]; null: all 1
  const float* scores;          ///< [tokens, experts]; null: weights count as scores
  const float* similarity;      ///< [experts, experts]; null: by score
  PlaceTables places;
  CopiesFromSource copies;
  std::int32_t topk;
  std::int32_t limit;
  bool keeps_sum;
  std::int32_t* pruned_experts;  ///< [tokens, topk]
  float* pruned_weights;         ///< [tokens, topk]
};

/// What is wrong with a token. The host throws an Error for it; on a device the token passes unchanged.
enum class PruneFault : std::uint8_t {
  none,
  out_of_range,  ///< an expert that does not exist
  repeated,      ///< an expert that the token names twice
  not_finite,    ///< an expert's weight or score
};

/// One token's contribution to the report.
struct PrunedToken {
  float mass_before = 0;
  float mass_after = 0;
  std::uint8_t places_before = 0;  ///< 0: the token has no expert
  std::uint8_t places_after = 0;
  std::uint8_t num_dropped = 0;
  bool is_changed = false;
};

class TokenPruner {
 public:
  constexpr TokenPruner(const PruneArrays& arrays, std::int64_t token)
      : arrays_(arrays),
        experts_(arrays.experts + token * arrays.topk),
        weights_(arrays.weights != nullptr ? arrays.weights + token * arrays.topk : nullptr),
        scores_(arrays.scores != nullptr ? arrays.scores + token * arrays.places.num_experts : nullptr),
        pruned_experts_(arrays.pruned_experts + token * arrays.topk),
        pruned_weights_(arrays.pruned_weights + token * arrays.topk) {}

  struct Fault {
    PruneFault kind;
    std::int32_t slot;
  };

  /// The first fault among the token's own entries. Scores of other experts are not checked.
  [[nodiscard]] constexpr Fault find_fault() const {
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      const std::int32_t expert = experts_[slot];
      if (expert == -1) continue;
      if (expert < 0 || expert >= arrays_.places.num_experts) return {PruneFault::out_of_range, slot};
      for (std::int32_t other = 0; other < slot; ++other)
        if (experts_[other] == expert) return {PruneFault::repeated, slot};
      if (!is_finite(weight(slot)) || (scores_ != nullptr && !is_finite(scores_[expert])))
        return {PruneFault::not_finite, slot};
    }
    return {PruneFault::none, 0};
  }

  /// Copies the routing to the pruned arrays.
  constexpr void pass() const {
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      pruned_experts_[slot] = experts_[slot];
      pruned_weights_[slot] = weight(slot);
    }
  }

  /// Requires a token without a fault.
  [[nodiscard]] constexpr PrunedToken prune() {
    pass();
    sort_slots();
    admit_places();
    PrunedToken token{.mass_before = sum_of([&](std::int32_t slot) { return score_[slot]; }),
                      .places_before = num_needed_};
    token.is_changed = num_needed_ > num_admitted_;
    if (token.is_changed && arrays_.similarity != nullptr)
      replace_by_similarity();
    else if (token.is_changed)
      replace_by_score(token.mass_before);
    std::int32_t places_served = 0;
    if (arrays_.copies.are_known()) {
      std::int32_t place_of[kMost];
      token.places_before = static_cast<std::uint8_t>(find_served(experts_, place_of));
      places_served = find_served(pruned_experts_, place_of);
      token.is_changed |= places_served > arrays_.limit;
      while (places_served > arrays_.limit) {
        drop(worst_slot(place_of));
        places_served = find_served(pruned_experts_, place_of);
      }
    }
    if (!token.is_changed) {
      token.mass_after = token.mass_before;
      token.places_after = token.places_before;
      return token;
    }
    if (arrays_.keeps_sum) restore_sum();
    describe(token);
    if (arrays_.copies.are_known()) token.places_after = static_cast<std::uint8_t>(places_served);
    return token;
  }

 private:
  static constexpr std::int32_t kMost = Routing::kMaxTopK;
  static constexpr float kLargest = 3.402823466e+38f;

  [[nodiscard]] static constexpr bool is_finite(float value) { return value >= -kLargest && value <= kLargest; }
  [[nodiscard]] constexpr float weight(std::int32_t slot) const { return weights_ != nullptr ? weights_[slot] : 1.0f; }
  [[nodiscard]] constexpr bool is_in_range(std::int32_t slot) const { return (in_range_ >> slot & 1) != 0; }

  /// Sums over the slots in which the token has an expert, ascending.
  template <class Value>
  [[nodiscard]] constexpr float sum_of(const Value& value) const {
    float sum = 0;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot)
      if (pruned_experts_[slot] >= 0) sum += value(slot);
    return sum;
  }

  /// A sort key: greater for greater values and, among equal values, for lower experts. Different experts have
  /// different keys, and no finite value has key 0.
  [[nodiscard]] static constexpr std::uint64_t key_of(float value, std::int32_t expert) {
    const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // −0 is 0
    const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x8000'0000u;
    return std::uint64_t{ascending} << 32 | ~static_cast<std::uint32_t>(expert);
  }
  [[nodiscard]] static constexpr std::int32_t expert_of(std::uint64_t key) {
    return static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
  }

  /// Slots with an expert, by descending score; equal scores by ascending expert.
  constexpr void sort_slots() {
    std::uint64_t keys[kMost];
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      const std::int32_t expert = experts_[slot];
      if (expert < 0) continue;
      score_[slot] = scores_ != nullptr ? scores_[expert] : weight(slot);
      const std::uint64_t key = key_of(score_[slot], expert);
      std::int32_t at = num_entries_++;
      for (; at > 0 && key > keys[at - 1]; --at) {
        keys[at] = keys[at - 1];
        walk_[at] = walk_[at - 1];
      }
      keys[at] = key;
      walk_[at] = static_cast<std::uint8_t>(slot);
      filter_ |= filter_bit(expert);
    }
  }

  /// Continues past the limit, which yields the token's number of places without pruning.
  constexpr void admit_places() {
    std::uint64_t covered = 0;
    for (std::int32_t i = 0; i < num_entries_; ++i) {
      if ((covered >> walk_[i] & 1) != 0) continue;
      const std::int32_t place = place_for(i, covered);
      for (std::int32_t j = i; j < num_entries_; ++j)
        if (arrays_.places.has(place, experts_[walk_[j]])) covered |= std::uint64_t{1} << walk_[j];
      ++num_needed_;
      if (num_needed_ > arrays_.limit) continue;
      admitted_[num_admitted_++] = place;
      in_range_ = covered;
    }
  }

  /// Among the places of the i-th expert of the walk, the one where the experts not yet covered have the highest total
  /// score; the lowest of equals.
  [[nodiscard]] constexpr std::int32_t place_for(std::int32_t i, std::uint64_t covered) const {
    const PlaceTables& places = arrays_.places;
    const std::int32_t expert = experts_[walk_[i]];
    const std::int32_t begin = places.places_begin[expert], end = places.places_begin[expert + 1];
    std::int32_t best = places.places[begin];
    if (end - begin == 1) return best;
    float best_score = 0;
    for (std::int32_t copy = begin; copy < end; ++copy) {
      const std::int32_t place = places.places[copy];
      float score = 0;
      for (std::int32_t j = i; j < num_entries_; ++j)
        if ((covered >> walk_[j] & 1) == 0 && places.has(place, experts_[walk_[j]])) score += score_[walk_[j]];
      if (copy > begin && score <= best_score) continue;
      best = place;
      best_score = score;
    }
    return best;
  }

  /// Calls use(expert) for each expert in range, possibly several times for one with several copies.
  template <class Use>
  constexpr void for_candidates(const Use& use) const {
    for (std::int32_t i = 0; i < num_admitted_; ++i) {
      const std::int32_t end = arrays_.places.experts_begin[admitted_[i] + 1];
      for (std::int32_t at = arrays_.places.experts_begin[admitted_[i]]; at < end; ++at)
        use(arrays_.places.experts[at]);
    }
  }

  [[nodiscard]] static constexpr std::uint64_t filter_bit(std::int32_t expert) {
    return std::uint64_t{1} << (expert & 63);
  }
  /// True if the token has the expert in any slot.
  [[nodiscard]] constexpr bool has(std::int32_t expert) const {
    if ((filter_ & filter_bit(expert)) == 0) return false;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot)
      if (pruned_experts_[slot] == expert) return true;
    return false;
  }

  /// Finds the `most` best experts in range that the token does not have, as keys, best first. Returns their number.
  constexpr std::int32_t find_best(std::int32_t most, std::uint64_t* best) const {
    std::int32_t count = 0;
    std::uint64_t worst = 0;
    for_candidates([&](std::int32_t expert) {
      const std::uint64_t key = key_of(scores_[expert], expert);
      if (key <= worst || has(expert) || !is_finite(scores_[expert])) return;
      std::int32_t at = count;
      while (at > 0 && key > best[at - 1]) --at;
      if (at > 0 && key == best[at - 1]) return;
      if (count < most) ++count;
      for (std::int32_t i = count - 1; i > at; --i) best[i] = best[i - 1];
      best[at] = key;
      if (count == most) worst = best[most - 1];
    });
    return count;
  }

  /// Assigns the best candidates, best first, to the slots out of range, in ascending order.
  constexpr void replace_by_score(float own_scores) {
    std::int32_t num_removed = 0;
    for (std::int32_t i = 0; i < num_entries_; ++i) num_removed += is_in_range(walk_[i]) ? 0 : 1;
    std::uint64_t best[kMost];
    const std::int32_t num_best = scores_ != nullptr ? find_best(num_removed, best) : 0;
    const float scale = ratio(sum_of([&](std::int32_t slot) { return weight(slot); }), own_scores);
    std::int32_t next = 0;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      if (experts_[slot] < 0 || is_in_range(slot)) continue;
      const bool is_replaced = next < num_best;
      pruned_experts_[slot] = is_replaced ? expert_of(best[next++]) : -1;
      pruned_weights_[slot] = !is_replaced ? 0.0f : weights_ == nullptr ? 1.0f : scores_[pruned_experts_[slot]] * scale;
    }
  }

  /// Replaces each expert out of range, in the order of the walk, by the most similar remaining candidate; among
  /// equals, by the lowest expert. The weight stays.
  constexpr void replace_by_similarity() {
    for (std::int32_t i = 0; i < num_entries_; ++i) {
      const std::int32_t slot = walk_[i];
      if (is_in_range(slot)) continue;
      const float* const similarity = arrays_.similarity + std::int64_t{experts_[slot]} * arrays_.places.num_experts;
      std::uint64_t best = 0;
      for_candidates([&](std::int32_t expert) {
        const std::uint64_t key = key_of(similarity[expert], expert);
        if (key > best && !has(expert)) best = key;
      });
      pruned_experts_[slot] = best != 0 ? expert_of(best) : -1;
      if (best != 0)
        filter_ |= filter_bit(expert_of(best));
      else
        pruned_weights_[slot] = 0;
    }
  }

  /// Computes, by slot, the places where plans serve these experts; slots without an expert are not written. Returns
  /// the number of places.
  constexpr std::int32_t find_served(const std::int32_t* experts, std::int32_t* place_of) const {
    const CopiesFromSource& copies = arrays_.copies;
    with_needed(copies.num_ranks, copies.source_node, [&](auto& needed) {
      choose_copies(copies.tables, copies.source, experts, arrays_.topk, needed,
                    [&](std::int32_t slot, std::int32_t physical) {
                      const CopyTables::Copy* copy = copies.tables.copies + copies.tables.copies_begin[experts[slot]];
                      while (copy->physical != physical) ++copy;
                      place_of[slot] = copies.places_are_nodes ? copy->node : copy->rank;
                    });
    });
    std::int32_t num_places = 0;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      if (experts[slot] < 0) continue;
      std::int32_t first = 0;
      while (experts[first] < 0 || place_of[first] != place_of[slot]) ++first;
      num_places += first == slot ? 1 : 0;
    }
    return num_places;
  }

  /// Selects the place where the token's experts have the lowest total score (the highest of equals), and there the
  /// slot with the lowest score (of equals, that of the highest expert).
  [[nodiscard]] constexpr std::int32_t worst_slot(const std::int32_t* place_of) const {
    const auto score = [&](std::int32_t slot) {
      return scores_ != nullptr ? scores_[pruned_experts_[slot]] : pruned_weights_[slot];
    };
    std::int32_t worst_place = -1;
    float least = 0;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      if (pruned_experts_[slot] < 0) continue;
      float sum = 0;
      for (std::int32_t other = 0; other < arrays_.topk; ++other)
        if (pruned_experts_[other] >= 0 && place_of[other] == place_of[slot]) sum += score(other);
      if (worst_place >= 0 && (sum > least || (sum == least && place_of[slot] <= worst_place))) continue;
      worst_place = place_of[slot];
      least = sum;
    }
    std::int32_t worst = -1;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      if (pruned_experts_[slot] < 0 || place_of[slot] != worst_place) continue;
      if (worst < 0 || score(slot) < score(worst) ||
          (score(slot) == score(worst) && pruned_experts_[slot] > pruned_experts_[worst]))
        worst = slot;
    }
    return worst;
  }

  constexpr void drop(std::int32_t slot) const {
    pruned_experts_[slot] = -1;
    pruned_weights_[slot] = 0;
  }

  /// sum / of; 1 if the quotient is not meaningful.
  [[nodiscard]] static constexpr float ratio(float sum, float of) {
    if (!(sum > 0 && of > 0)) return 1;
    const float quotient = sum / of;
    return is_finite(quotient) ? quotient : 1.0f;
  }

  constexpr void restore_sum() const {
    float before = 0;
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot)
      if (experts_[slot] >= 0) before += weight(slot);
    const float scale = ratio(before, sum_of([&](std::int32_t slot) { return pruned_weights_[slot]; }));
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot)
      if (pruned_experts_[slot] >= 0) pruned_weights_[slot] *= scale;
  }

  constexpr void describe(PrunedToken& token) const {
    token.mass_after = sum_of([&](std::int32_t slot) {
      return scores_ != nullptr ? scores_[pruned_experts_[slot]] : is_in_range(slot) ? score_[slot] : 0.0f;
    });
    std::uint64_t used = 0;  // admitted places that serve an expert: the first that has it
    for (std::int32_t slot = 0; slot < arrays_.topk; ++slot) {
      if (pruned_experts_[slot] < 0) {
        if (experts_[slot] >= 0) ++token.num_dropped;
        continue;
      }
      std::int32_t i = 0;
      while (!arrays_.places.has(admitted_[i], pruned_experts_[slot])) ++i;
      used |= std::uint64_t{1} << i;
    }
    for (; used != 0; used &= used - 1) ++token.places_after;
  }

  const PruneArrays& arrays_;
  const std::int32_t* experts_;  // this token's entries, as in the pointers below
  const float* weights_;
  const float* scores_;
  std::int32_t* pruned_experts_;
  float* pruned_weights_;

  float score_[kMost];            // by slot, if it has an expert
  std::uint8_t walk_[kMost];      // slots in the order of the walk
  std::int32_t admitted_[kMost];  // places
  std::int32_t num_entries_ = 0;
  std::uint8_t num_needed_ = 0;  // number of places of all the token's experts
  std::uint8_t num_admitted_ = 0;
  std::uint64_t in_range_ = 0;  // a bit per slot
  std::uint64_t filter_ = 0;    // bits of the token's experts; answers most calls of has() without a search
};

}  // namespace shunt
