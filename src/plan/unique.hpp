// The index maps of `token_unique`: which unique row each expert-major row copies, and back.
#pragma once

#include <span>

#include "plan/plan_data.hpp"
#include "plan/token_list.hpp"

namespace shunt {

/// `lists` are all sources' for this rank, in rank order. Reads topk, num_expert_rows, expert_offsets and rows_of_rank
/// of the plan, fills its unique_… and …_of_unique arrays.
void fill_unique_maps(PlanData& plan, std::span<const TokenList> lists);

}  // namespace shunt
