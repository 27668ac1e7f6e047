#include "bench/reference/copies.hpp"

#include <map>
#include <set>

namespace shunt {
namespace {

// The finaliser of MurmurHash3.
std::uint32_t murmur(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6b;
  h ^= h >> 13;
  h *= 0xc2b2ae35;
  h ^= h >> 16;
  return h;
}

class Token {
 public:
  Token(const ExpertMap& map, const Topology& topology, RankId source, const std::set<ExpertId>& experts)
      : map_(map), topology_(topology), source_(source), nodes_{topology.node(source)} {
    for (const ExpertId expert : experts) hash_ += murmur(static_cast<std::uint32_t>(expert.value) + 0x9e3779b9);
    for (const ExpertId expert : experts)
      if (map_.copies(expert).size() == 1) serve(expert, map_.copies(expert).front());
    for (const ExpertId expert : experts)
      if (map_.copies(expert).size() > 1) serve(expert, draw(expert, best_copies(expert)));
  }

  [[nodiscard]] PhysicalId copy_of(ExpertId expert) const { return copy_of_.at(expert); }

 private:
  void serve(ExpertId expert, PhysicalId copy) {
    copy_of_[expert] = copy;
    ranks_.insert(map_.rank(copy));
    nodes_.insert(topology_.node(map_.rank(copy)));
  }

  [[nodiscard]] std::vector<PhysicalId> best_copies(ExpertId expert) const {
    std::vector<PhysicalId> needed, own, near, all;
    for (const PhysicalId copy : map_.copies(expert)) {
      const RankId rank = map_.rank(copy);
      if (ranks_.contains(rank)) needed.push_back(copy);
      if (rank == source_) own.push_back(copy);
      if (nodes_.contains(topology_.node(rank))) near.push_back(copy);
      all.push_back(copy);
    }
    for (const auto& some : {needed, own, near})
      if (!some.empty()) return some;
    return all;
  }

  /// Divides a line into one interval per copy, as long as its share; the token's hash is a point on the line.
  [[nodiscard]] PhysicalId draw(ExpertId expert, const std::vector<PhysicalId>& copies) const {
    double length = 0;
    for (const PhysicalId copy : copies) length += map_.share(copy);
    const double point = murmur(hash_ + static_cast<std::uint32_t>(expert.value)) / 4294967296.0 * length;
    double end = 0;
    for (const PhysicalId copy : copies) {
      end += map_.share(copy);
      if (point < end) return copy;
    }
    return {};
  }

  const ExpertMap& map_;
  const Topology& topology_;
  RankId source_;
  std::uint32_t hash_ = 0;
  std::set<RankId> ranks_;
  std::set<NodeId> nodes_;
  std::map<ExpertId, PhysicalId> copy_of_;
};

}  // namespace

std::vector<PhysicalId> reference_copies(const ExpertMap& map, const Topology& topology, RankId source,
                                         std::span<const std::int32_t> experts) {
  std::set<ExpertId> named;
  for (const std::int32_t expert : experts)
    if (expert != -1) named.emplace(expert);
  const Token token(map, topology, source, named);
  std::vector<PhysicalId> copies;
  for (const std::int32_t expert : experts)
    copies.push_back(expert == -1 ? PhysicalId() : token.copy_of(ExpertId(expert)));
  return copies;
}

}  // namespace shunt
