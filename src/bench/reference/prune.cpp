#include "bench/reference/prune.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/reference/copies.hpp"

namespace shunt {
namespace {

using Place = std::int32_t;

struct Request {
  const Routing& routing;
  std::span<const float> scores;
  const ExpertMap& map;
  const Topology& topology;
  const PruneOptions& options;
};

struct Entry {
  std::size_t slot;
  ExpertId expert;
  float weight;
  float score;
};

class ReferenceToken {
 public:
  ReferenceToken(const Request& request, std::size_t token)
      : request_(request), topk_(static_cast<std::size_t>(request.routing.topk)) {
    const auto num_experts = static_cast<std::size_t>(request.map.num_experts());
    if (!request.scores.empty()) scores_ = request.scores.subspan(token * num_experts, num_experts);
    for (std::size_t slot = 0; slot < topk_; ++slot) {
      const std::size_t entry = token * topk_ + slot;
      const ExpertId expert(request.routing.experts.narrow()[entry]);
      const float weight = request.routing.weight(entry);
      experts.push_back(expert.value);
      weights.push_back(weight);
      if (!expert.valid()) continue;
      entries_.push_back({slot, expert, weight, scores_.empty() ? weight : scores_[expert.index()]});
    }
    walk_ = entries_;
    std::sort(walk_.begin(), walk_.end(), [](const Entry& a, const Entry& b) {
      return a.score != b.score ? a.score > b.score : a.expert < b.expert;
    });
    for (const Entry& entry : entries_) mass_before += entry.score;
    mass_after = mass_before;
  }

  void prune() {
    const auto served_before = request_.options.source.valid() ? served().size() : 0;
    const std::vector<Place> needed = admit(walk_.size());
    places_before = places_after = needed.size();
    admitted_ = admit(static_cast<std::size_t>(request_.options.limit));
    if (needed != admitted_) {
      is_changed = true;
      if (request_.options.similarity)
        replace_by_similarity();
      else
        replace_by_score();
    }
    const bool has_copies = request_.options.source.valid() && request_.map.has_replicas();
    if (has_copies) {
      places_before = places_after = served_before;
      drop_until_served_within_the_limit();
    }
    if (!is_changed) return;
    if (request_.options.renormalise == Renormalise::keep_sum) restore_sum();
    count_what_is_left();
    if (has_copies) places_after = served().size();
  }

  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  float mass_before = 0;
  float mass_after = 0;
  std::size_t places_before = 0;
  std::size_t places_after = 0;
  std::int64_t num_dropped = 0;
  bool is_changed = false;

  [[nodiscard]] bool is_routed() const { return !entries_.empty(); }

 private:
  [[nodiscard]] std::set<Place> places_of(ExpertId expert) const {
    std::set<Place> places;
    for (const PhysicalId copy : request_.map.copies(expert)) {
      const RankId rank = request_.map.rank(copy);
      places.insert(request_.options.level == PruneLevel::nodes ? request_.topology.node(rank).value : rank.value);
    }
    return places;
  }
  [[nodiscard]] bool is_on(ExpertId expert, const std::vector<Place>& places) const {
    const auto of_expert = places_of(expert);
    return std::any_of(places.begin(), places.end(), [&](Place place) { return of_expert.contains(place); });
  }
  [[nodiscard]] bool is_in_range(ExpertId expert) const { return is_on(expert, admitted_); }

  /// Walks the entries until `most` places are admitted.
  [[nodiscard]] std::vector<Place> admit(std::size_t most) const {
    std::vector<Place> admitted;
    for (const Entry& entry : walk_) {
      if (admitted.size() == most) break;
      if (is_on(entry.expert, admitted)) continue;
      std::map<Place, float> covered;
      for (const Place place : places_of(entry.expert))
        for (const Entry& other : walk_)
          if (!is_on(other.expert, admitted) && is_on(other.expert, {place})) covered[place] += other.score;
      admitted.push_back(std::max_element(covered.begin(), covered.end(), [](const auto& a, const auto& b) {
                           return a.second < b.second;
                         })->first);
    }
    return admitted;
  }

  /// Experts on admitted places that the token does not have yet, by descending value, then ascending expert.
  template <class Value>
  [[nodiscard]] std::vector<ExpertId> candidates(const Value& value) const {
    std::vector<ExpertId> found;
    for (std::int32_t expert = 0; expert < request_.map.num_experts(); ++expert)
      if (is_in_range(ExpertId(expert)) && std::find(experts.begin(), experts.end(), expert) == experts.end())
        found.emplace_back(expert);
    std::stable_sort(found.begin(), found.end(), [&](ExpertId a, ExpertId b) { return value(a) > value(b); });
    return found;
  }

  void drop(const Entry& entry) {
    experts[entry.slot] = -1;
    weights[entry.slot] = 0;
    ++num_dropped;
  }

  void replace_by_score() {
    std::vector<ExpertId> left;
    if (!scores_.empty()) left = candidates([&](ExpertId expert) { return scores_[expert.index()]; });
    float weight_sum = 0;
    for (const Entry& entry : entries_) weight_sum += entry.weight;
    for (const Entry& entry : entries_) {
      if (is_in_range(entry.expert)) continue;
      if (left.empty()) {
        drop(entry);
        continue;
      }
      const ExpertId replacement = left.front();
      left.erase(left.begin());
      experts[entry.slot] = replacement.value;
      weights[entry.slot] =
          request_.routing.weights.empty() ? 1.0f : scores_[replacement.index()] * quotient(weight_sum, mass_before);
    }
  }

  void replace_by_similarity() {
    for (const Entry& entry : walk_) {
      if (is_in_range(entry.expert)) continue;
      const auto left =
          candidates([&](ExpertId expert) { return request_.options.similarity->at(entry.expert, expert); });
      if (left.empty())
        drop(entry);
      else
        experts[entry.slot] = left.front().value;
    }
  }

  /// For each place the slots that it serves, ascending.
  [[nodiscard]] std::map<Place, std::vector<std::size_t>> served() const {
    std::map<Place, std::vector<std::size_t>> slots;
    const std::vector<PhysicalId> copies =
        reference_copies(request_.map, request_.topology, request_.options.source, experts);
    for (std::size_t slot = 0; slot < copies.size(); ++slot) {
      if (!copies[slot].valid()) continue;
      const RankId rank = request_.map.rank(copies[slot]);
      slots[request_.options.level == PruneLevel::nodes ? request_.topology.node(rank).value : rank.value].push_back(
          slot);
    }
    return slots;
  }

  void drop_until_served_within_the_limit() {
    const auto score = [&](std::size_t slot) {
      return scores_.empty() ? weights[slot] : scores_[static_cast<std::size_t>(experts[slot])];
    };
    for (auto places = served(); places.size() > static_cast<std::size_t>(request_.options.limit); places = served()) {
      const auto worst_place = std::min_element(places.rbegin(), places.rend(), [&](const auto& a, const auto& b) {
        const auto sum = [&](const std::vector<std::size_t>& slots) {
          float total = 0;
          for (const std::size_t slot : slots) total += score(slot);
          return total;
        };
        return sum(a.second) < sum(b.second);
      });
      const auto& slots = worst_place->second;
      const std::size_t worst = *std::min_element(slots.begin(), slots.end(), [&](std::size_t a, std::size_t b) {
        return score(a) != score(b) ? score(a) < score(b) : experts[a] > experts[b];
      });
      experts[worst] = -1;
      weights[worst] = 0;
      ++num_dropped;
      is_changed = true;
    }
  }

  static float quotient(float a, float b) { return a > 0 && b > 0 && std::isfinite(a / b) ? a / b : 1.0f; }

  void restore_sum() {
    float before = 0, after = 0;
    for (const Entry& entry : entries_) before += entry.weight;
    for (const Entry& entry : entries_) after += weights[entry.slot];
    for (const Entry& entry : entries_) weights[entry.slot] *= quotient(before, after);
  }

  void count_what_is_left() {
    mass_after = 0;
    std::set<Place> used;
    for (const Entry& entry : entries_) {
      const ExpertId expert(experts[entry.slot]);
      if (!expert.valid()) continue;
      if (!scores_.empty())
        mass_after += scores_[expert.index()];
      else if (expert == entry.expert)
        mass_after += entry.score;
      used.insert(
          *std::find_if(admitted_.begin(), admitted_.end(), [&](Place place) { return is_on(expert, {place}); }));
    }
    places_after = used.size();
  }

  const Request& request_;
  std::size_t topk_;
  std::span<const float> scores_;  // scores of all experts, or empty
  std::vector<Entry> entries_;     // by slot
  std::vector<Entry> walk_;        // best first
  std::vector<Place> admitted_;
};

}  // namespace

PrunedRouting reference_prune(const Routing& routing, std::span<const float> scores, const ExpertMap& map,
                              const Topology& topology, const PruneOptions& options) {
  const Request request{routing, scores, map, topology, options};
  PrunedRouting pruned{.experts = {}, .weights = {}, .topk = routing.topk, .report = {}};
  double mass_before = 0, mass_after = 0, routed = 0, changed = 0, before = 0, after = 0;
  for (std::size_t number = 0; number < routing.num_tokens(); ++number) {
    ReferenceToken token(request, number);
    token.prune();
    pruned.experts.insert(pruned.experts.end(), token.experts.begin(), token.experts.end());
    pruned.weights.insert(pruned.weights.end(), token.weights.begin(), token.weights.end());
    pruned.report.num_dropped += token.num_dropped;
    mass_before += double{token.mass_before};
    mass_after += double{token.mass_after};
    routed += token.is_routed();
    changed += token.is_changed;
    before += static_cast<double>(token.places_before);
    after += static_cast<double>(token.places_after);
  }
  if (routed > 0) {
    if (mass_before != 0) pruned.report.mass_kept = mass_after / mass_before;
    pruned.report.share_changed = changed / routed;
    pruned.report.c_t_before = before / routed;
    pruned.report.c_t_after = after / routed;
  }
  return pruned;
}

}  // namespace shunt
