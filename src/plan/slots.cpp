#include "plan/slots.hpp"

#include <limits>

#include "core/fail.hpp"

namespace shunt {
namespace {

void check_fits(std::int64_t rows, RankId receiver, RankId self) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (rows > kMost)
    fail(ErrorCode::invalid_argument, "plan: rank {}: rank {} would receive {} rows or more, expected at most {}", self,
         receiver, rows, kMost);
}

std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

ExpertRows expert_rows(const CountSums& sums, const ExpertMap& map, RankId self, std::int32_t alignment) {
  const auto& [all, before] = sums.rows();
  ExpertRows rows;
  for (std::int32_t r = 0; r < map.num_ranks(); ++r) {
    const RankId rank(r);
    std::int64_t end = 0;
    for (std::int32_t local = 0; local < map.num_local(rank); ++local) {
      const auto expert = rows.offsets.size();
      rows.offsets.push_back(end);
      rows.first_slot.push_back(static_cast<std::int32_t>(end + before[expert]));
      end = align_up(end + all[expert], alignment);
      check_fits(end, rank, self);
    }
    rows.rows_of_rank.push_back(end);
  }
  rows.totals = all;
  return rows;
}

ExpertRows padded_rows(const ExpertMap& map, RankId self, std::int64_t max_tokens) {
  ExpertRows rows;
  const std::int64_t block = map.num_ranks() * max_tokens;
  for (std::int32_t r = 0; r < map.num_ranks(); ++r) {
    const std::int32_t num_local = map.num_local(RankId(r));
    for (std::int32_t local = 0; local < num_local; ++local) {
      rows.offsets.push_back(local * block);
      rows.first_slot.push_back(static_cast<std::int32_t>(local * block + self.value * max_tokens));
    }
    rows.rows_of_rank.push_back(num_local * block);
  }
  return rows;
}

UniqueRows unique_rows(const CountSums& sums, RankId self) {
  const auto& [all, before] = sums.tokens();
  UniqueRows rows;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    check_fits(all[rank], RankId(rank), self);
    rows.first_slot.push_back(static_cast<std::int32_t>(before[rank]));
  }
  rows.rows_of_rank = all;
  return rows;
}

}  // namespace shunt
