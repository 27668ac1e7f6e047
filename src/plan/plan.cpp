#include "shunt/plan.hpp"

#include <array>

#include "core/fail.hpp"
#include "plan/plan_data.hpp"

namespace shunt {
namespace {

constexpr std::array kLayouts = {Layout::expert_major, Layout::token_unique, Layout::padded};

const PlanData& made(const std::shared_ptr<const PlanData>& data) {
  if (!data) fail(ErrorCode::invalid_argument, "plan: empty; Engine::plan makes one");
  return *data;
}

}  // namespace

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::expert_major: return "expert_major";
    case Layout::token_unique: return "token_unique";
    case Layout::padded: return "padded";
  }
  return "unknown";
}

std::string_view to_string(Forwarders forwarders) {
  switch (forwarders) {
    case Forwarders::balanced: return "balanced";
    case Forwarders::rotated: return "rotated";
  }
  return "unknown";
}

Layout parse_layout(std::string_view name) {
  for (const Layout layout : kLayouts)
    if (to_string(layout) == name) return layout;
  fail(ErrorCode::invalid_argument, "unknown layout '{}': expected expert_major, token_unique or padded", name);
}

PlanArrays PlanData::host_arrays() const {
  return {expert_offsets,        expert_counts,  row_count,     unique_of_expert_row,
          expert_rows_of_unique, unique_experts, unique_weights};
}

PlanArrays PlanData::device_arrays() const {
  fail(ErrorCode::unsupported, "plan: rank {}: its engine moves host memory, so no device has its arrays", self);
}

PlanContents PlanData::read() const {
  return {num_rows(),           num_expert_rows,       false,          expert_offsets, expert_counts,
          unique_of_expert_row, expert_rows_of_unique, unique_experts, unique_weights};
}

void PlanData::require_counts(std::string_view) const {}

Layout Plan::layout() const { return made(data_).options.layout; }
std::int64_t Plan::num_tokens() const { return made(data_).num_tokens; }
std::int32_t Plan::topk() const { return made(data_).topk; }

std::int64_t Plan::num_rows() const { return made(data_).num_rows(); }
std::int64_t Plan::num_expert_rows() const { return made(data_).num_expert_rows; }
std::int32_t Plan::num_local_experts() const { return made(data_).num_local_experts; }

std::span<const std::int32_t> Plan::expert_offsets() const { return made(data_).host_arrays().expert_offsets; }
std::span<const std::int32_t> Plan::expert_counts() const { return made(data_).host_arrays().expert_counts; }
std::span<const std::int32_t> Plan::unique_of_expert_row() const {
  return made(data_).host_arrays().unique_of_expert_row;
}
std::span<const std::int32_t> Plan::expert_rows_of_unique() const {
  return made(data_).host_arrays().expert_rows_of_unique;
}
std::span<const std::int32_t> Plan::unique_experts() const { return made(data_).host_arrays().unique_experts; }
std::span<const float> Plan::unique_weights() const { return made(data_).host_arrays().unique_weights; }

PlanArrays Plan::device() const { return made(data_).device_arrays(); }
PlanContents Plan::read() const { return made(data_).read(); }

std::int64_t Plan::num_dropped() const {
  made(data_).require_counts("num_dropped");
  return data_->num_dropped;
}

Traffic Plan::traffic(std::size_t row_bytes) const {
  const PlanData& plan = made(data_);
  plan.require_counts("traffic");
  if (plan.options.layout == Layout::padded)
    fail(ErrorCode::invalid_argument, "plan: rank {}: traffic is unknown in layout padded, no counts are exchanged",
         plan.self);
  const TrafficCounts& counts = plan.traffic;
  Traffic traffic{.sent_bytes = counts.sent_rows,
                  .total_bytes = counts.rows * row_bytes,
                  .between_ranks_bytes = counts.rows_between_ranks * row_bytes,
                  .between_nodes_bytes = counts.tokens_between_nodes * row_bytes,
                  .heaviest_link_bytes = counts.heaviest_link * row_bytes,
                  .least_heaviest_link_bytes = counts.least_heaviest_link * row_bytes};
  for (std::uint64_t& bytes : traffic.sent_bytes) bytes *= row_bytes;
  if (counts.routed_tokens > 0)
    traffic.mean_ranks_per_token =
        static_cast<double>(counts.tokens_to_ranks) / static_cast<double>(counts.routed_tokens);
  return traffic;
}

std::uint64_t Plan::hash() const { return made(data_).hash; }

}  // namespace shunt
