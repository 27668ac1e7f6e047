// What the four data operations have in common.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/fabric.hpp"
#include "engine/operation.hpp"
#include "kernels/store.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

/// An operation over a plan. Among near ranks the work is done by the rank that owns the tokens: it writes rows
/// straight into their slots in the receivers' memory, or reads them from there. A far node gets one row per token,
/// through one of its ranks, the forwarder, which does there what the owner of the token can't do.
class Shuffle : public Operation {
 public:
  struct Context {
    Transport& transport;
    std::shared_ptr<const Group> group;
    std::uint64_t engine;
    std::chrono::milliseconds deadline;
    std::shared_ptr<const PlanData> plan;
  };

  [[nodiscard]] std::vector<RankId> far_partners() const override;

  Shuffle(const Context& context, const Announcement& announcement)
      : Operation(context.group, context.engine, announcement, context.deadline),
        transport_(context.transport),
        plan_(context.plan) {}

 protected:
  [[nodiscard]] const PlanData& plan() const { return *plan_; }

  /// Throws PeerError unless what a near peer announced has the size that the plan demands.
  void check_announced(RankId rank, const Announcement& peer, std::size_t expected_bytes) const;
  /// The block that a near peer announced, checked; nullptr for a far peer.
  [[nodiscard]] std::byte* announced_block(RankId rank, const Announcement& peer, std::size_t expected_bytes) const;
  [[nodiscard]] std::byte* peer_block(RankId rank, std::uint64_t offset, std::size_t bytes) const;

  [[nodiscard]] bool has_flows() const { return !plan_->out_flows.empty() || !plan_->in_flows.empty(); }
  /// The end of the run of tokens from `begin` to do at once: all, or so few that the network does not wait long.
  [[nodiscard]] std::int64_t end_of_chunk(std::int64_t begin, std::size_t bytes_per_token) const;

  /// How to write this rank's `bytes`. All ranks of a host write at about the same time and share its cache.
  [[nodiscard]] Store store_for(std::size_t bytes) const { return choose_store(bytes * group().num_near()); }

 private:
  Transport& transport_;
  std::shared_ptr<const PlanData> plan_;
};

/// Calls visit(begin, end) for each run of alignment padding in this rank's `expert_major` rows.
template <class Visit>
void for_each_padding(const PlanData& plan, const Visit& visit) {
  if (plan.options.layout != Layout::expert_major || plan.options.alignment == 1) return;
  for (std::size_t expert = 0; expert < plan.expert_offsets.size(); ++expert) {
    const std::int64_t begin = plan.expert_offsets[expert] + plan.expert_counts[expert];
    const std::int64_t end =
        expert + 1 < plan.expert_offsets.size() ? plan.expert_offsets[expert + 1] : plan.num_rows();
    if (begin < end) visit(begin, end);
  }
}

/// Zeroes that padding.
void zero_padding(const PlanData& plan, std::byte* rows, std::size_t row_bytes);

}  // namespace shunt
