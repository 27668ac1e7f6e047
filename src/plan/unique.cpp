#include "plan/unique.hpp"

namespace shunt {

void fill_unique_maps(PlanData& plan, std::span<const TokenList> lists) {
  const auto topk = static_cast<std::size_t>(plan.topk);
  const auto num_cells = static_cast<std::size_t>(plan.num_rows()) * topk;
  plan.unique_of_expert_row.assign(static_cast<std::size_t>(plan.num_expert_rows), -1);
  plan.expert_rows_of_unique.assign(num_cells, -1);
  plan.unique_experts.assign(num_cells, -1);
  plan.unique_weights.assign(num_cells, 0.0f);

  // Sources and tokens ascend here as they do within an expert, so each expert's rows fill up one by one.
  std::vector<std::int32_t> next_row = plan.expert_offsets;
  std::size_t unique = 0;
  for (const TokenList& list : lists) {
    std::size_t entry = 0;
    for (const std::uint32_t count : list.entries_per_token()) {
      for (std::size_t cell = unique * topk; cell < unique * topk + count; ++cell, ++entry) {
        const std::uint32_t expert = list.experts()[entry];
        const std::int32_t row = next_row[expert]++;
        plan.unique_of_expert_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(unique);
        plan.expert_rows_of_unique[cell] = row;
        plan.unique_experts[cell] = static_cast<std::int32_t>(expert);
        plan.unique_weights[cell] = list.weight(entry);
      }
      ++unique;
    }
  }
}

}  // namespace shunt
