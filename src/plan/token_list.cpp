#include "plan/token_list.hpp"

#include <algorithm>
#include <cmath>

#include "core/fail.hpp"

namespace shunt {
namespace {

// The next free words in one rank's list.
struct Cursor {
  explicit Cursor(const ListExtent& extent)
      : token(extent.begin), expert(token + extent.num_tokens), weight(expert + extent.num_entries) {}

  std::size_t token;
  std::size_t expert;
  std::size_t weight;
};

[[noreturn]] void fail_list(RankId source, RankId self, std::size_t token, const char* cause) {
  fail_because_of(source, "plan: rank {} sent rank {} a token list whose entry {} {}", source, self, token, cause);
}

}  // namespace

std::vector<ListExtent> list_extents(const SourceCounts& counts, const ExpertMap& map) {
  std::vector<ListExtent> extents;
  std::uint64_t begin = 0;
  for (std::size_t rank = 0; rank < counts.tokens_per_rank.size(); ++rank) {
    extents.push_back({begin, counts.tokens_per_rank[rank], counts.rows_for(RankId(rank), map)});
    begin = extents.back().end();
  }
  return extents;
}

void write_lists(std::span<std::uint32_t> words, std::span<const ListExtent> extents, const Demand& demand,
                 const Routing& routing, const ExpertMap& map) {
  std::vector<Cursor> cursors(extents.begin(), extents.end());
  for (std::size_t token = 0; token < demand.num_tokens(); ++token) {
    RankId last_rank;
    for (const DemandEntry entry : demand.entries_of(token)) {
      const RankId rank = map.rank(entry.expert);
      Cursor& cursor = cursors[rank.index()];
      cursor.token += rank != last_rank;
      ++words[cursor.token - 1];
      const std::size_t choice =
          token * static_cast<std::size_t>(routing.topk) + static_cast<std::size_t>(entry.choice);
      words[cursor.expert++] = static_cast<std::uint32_t>(entry.expert.value - map.first_physical(rank).value);
      words[cursor.weight++] = std::bit_cast<std::uint32_t>(routing.weight(choice));
      last_rank = rank;
    }
  }
}

void check_list(const TokenList& list, std::span<const std::uint32_t> rows, std::uint64_t topk, RankId source,
                RankId self) {
  std::vector<std::uint32_t> listed(rows.size());
  std::size_t begin = 0;
  for (std::size_t token = 0; token < list.entries_per_token().size(); ++token) {
    const std::size_t count = list.entries_per_token()[token];
    if (count == 0 || count > topk) fail_list(source, self, token, "has an impossible length");
    if (count > list.experts().size() - begin) fail_list(source, self, token, "overruns the list");
    for (std::size_t entry = begin; entry < begin + count; ++entry) {
      const std::uint32_t expert = list.experts()[entry];
      if (expert >= rows.size()) fail_list(source, self, token, "names an expert that isn't there");
      if (entry > begin && expert <= list.experts()[entry - 1]) fail_list(source, self, token, "is out of order");
      if (!std::isfinite(list.weight(entry))) fail_list(source, self, token, "has a weight that isn't finite");
      ++listed[expert];
    }
    begin += count;
  }
  if (!std::ranges::equal(listed, rows))
    fail_because_of(source, "plan: rank {} sent rank {} a token list that contradicts its counts", source, self);
}

void fill_unique_maps(PlanData& plan, std::span<const TokenList> lists) {
  const auto topk = static_cast<std::size_t>(plan.topk);
  const auto num_cells = static_cast<std::size_t>(plan.num_rows()) * topk;
  plan.unique_of_expert_row.assign(static_cast<std::size_t>(plan.num_expert_rows), -1);
  plan.expert_rows_of_unique.assign(num_cells, -1);
  plan.unique_experts.assign(num_cells, -1);
  plan.unique_weights.assign(num_cells, 0.0f);

  // Sources and tokens ascend here, as within an expert, so each expert's rows are filled in order.
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
