#include "shunt/copy_choice.hpp"

#include <algorithm>
#include <array>

#include "core/copy_choice.hpp"
#include "core/fail.hpp"
#include "shunt/routing.hpp"

namespace shunt {

class CopyChoice::Needed {
 public:
  Needed(CopyChoice& choice, std::int32_t source) : choice_(choice) {
    if (++choice.token_ == 0) {  // the count has come round: nobody's mark may look like this token's
      std::ranges::fill(choice.rank_needed_by_, 0);
      std::ranges::fill(choice.node_needed_by_, 0);
      choice.token_ = 1;
    }
    need_node(choice.node_of_[static_cast<std::size_t>(source)]);
  }

  [[nodiscard]] bool has_rank(std::int32_t rank) const {
    return choice_.rank_needed_by_[static_cast<std::size_t>(rank)] == choice_.token_;
  }
  [[nodiscard]] bool has_node(std::int32_t node) const {
    return choice_.node_needed_by_[static_cast<std::size_t>(node)] == choice_.token_;
  }
  void add(std::int32_t rank) {
    choice_.rank_needed_by_[static_cast<std::size_t>(rank)] = choice_.token_;
    need_node(choice_.node_of_[static_cast<std::size_t>(rank)]);
  }

 private:
  void need_node(std::int32_t node) { choice_.node_needed_by_[static_cast<std::size_t>(node)] = choice_.token_; }

  CopyChoice& choice_;
};

CopyChoice::CopyChoice(const ExpertMap& map, const Topology& topology)
    : copies_begin_{0},
      rank_needed_by_(static_cast<std::size_t>(topology.num_ranks())),
      node_needed_by_(static_cast<std::size_t>(topology.num_nodes())) {
  SHUNT_CHECK(map.num_ranks() == topology.num_ranks());
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    const auto all = map.copies(ExpertId(expert));
    only_copy_.push_back(all.size() == 1 ? all.front().value : -1);
    for (const PhysicalId copy : all) copies_.push_back(copy.value);
    copies_begin_.push_back(static_cast<std::int32_t>(copies_.size()));
  }
  for (std::int32_t p = 0; p < map.num_physical(); ++p) {
    rank_of_.push_back(map.rank(PhysicalId(p)).value);
    share_of_.push_back(map.share(PhysicalId(p)));
  }
  for (const NodeId node : topology.nodes()) node_of_.push_back(node.value);
}

void CopyChoice::choose(RankId source, std::span<const std::int32_t> experts, std::span<PhysicalId> copies) {
  SHUNT_CHECK(copies.size() == experts.size() && experts.size() <= std::size_t{Routing::kMaxTopK});
  const CopyTables tables{static_cast<std::int32_t>(only_copy_.size()),
                          only_copy_.data(),
                          copies_begin_.data(),
                          copies_.data(),
                          rank_of_.data(),
                          share_of_.data(),
                          node_of_.data()};
  std::array<std::int32_t, Routing::kMaxTopK> chosen;
  Needed needed(*this, source.value);
  choose_copies(tables, source.value, experts.data(), static_cast<std::int32_t>(experts.size()), needed, chosen.data());
  for (std::size_t choice = 0; choice < experts.size(); ++choice) copies[choice] = PhysicalId(chosen[choice]);
}

}  // namespace shunt
