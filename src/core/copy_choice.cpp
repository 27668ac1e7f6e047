#include "shunt/copy_choice.hpp"

#include "core/copy_choice.hpp"
#include "core/fail.hpp"

namespace shunt {

CopyArrays::CopyArrays(const ExpertMap& map, const Topology& topology) : copies_begin{0} {
  if (map.num_ranks() != topology.num_ranks())
    fail(ErrorCode::invalid_argument, "choice of copies: a map of {} ranks, a topology of {}", map.num_ranks(),
         topology.num_ranks());
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    for (const PhysicalId copy : map.copies(ExpertId(expert)))
      copies.push_back({copy.value, map.rank(copy).value, topology.node(map.rank(copy)).value, map.share(copy)});
    const bool has_one = static_cast<std::int32_t>(copies.size()) == copies_begin.back() + 1;
    const CopyTables::Copy only = has_one ? copies.back() : CopyTables::Copy{-1, -1, -1, 0};
    experts.push_back({only.physical, only.rank, only.node, hash_of_expert(expert)});
    copies_begin.push_back(static_cast<std::int32_t>(copies.size()));
  }
}

CopyChoice::CopyChoice(const ExpertMap& map, const Topology& topology)
    : arrays_(std::make_shared<CopyArrays>(map, topology)),
      node_of_(topology.nodes().begin(), topology.nodes().end()) {}

void CopyChoice::choose(RankId source, std::span<const std::int32_t> experts, std::span<PhysicalId> copies) const {
  if (source.value < 0 || source.index() >= node_of_.size())
    fail(ErrorCode::invalid_argument, "choice of copies: source {} of {} ranks", source, node_of_.size());
  if (copies.size() != experts.size() || experts.size() > std::size_t{Routing::kMaxTopK})
    fail(ErrorCode::invalid_argument,
         "choice of copies: room for {} copies of {} experts, expected as many, at most {}", copies.size(),
         experts.size(), Routing::kMaxTopK);
  for (PhysicalId& copy : copies) copy = PhysicalId();
  with_needed(static_cast<std::int32_t>(node_of_.size()), node_of_[source.index()].value, [&](auto& needed) {
    choose_copies(arrays_->tables(), source.value, experts.data(), static_cast<std::int32_t>(experts.size()), needed,
                  [&](std::int32_t choice, std::int32_t physical) {
                    copies[static_cast<std::size_t>(choice)] = PhysicalId(physical);
                  });
  });
}

}  // namespace shunt
