#include "plan/capacity.hpp"

#include <algorithm>

#include "core/fail.hpp"

namespace shunt {

void clamp_rows(GlobalCounts& counts, std::int64_t capacity) {
  const auto num_physical = static_cast<std::size_t>(counts.num_physical);
  std::vector<std::int64_t> room(num_physical, capacity);
  for (std::size_t i = 0; i < counts.rows.size(); ++i) {
    auto& left = room[i % num_physical];
    counts.rows[i] = static_cast<std::uint32_t>(std::min<std::int64_t>(counts.rows[i], left));
    left -= counts.rows[i];
  }
}

void check_kept(const GlobalCounts& kept, const GlobalCounts& clamped, RankId self) {
  const auto [differs, expected] = std::mismatch(kept.rows.begin(), kept.rows.end(), clamped.rows.begin());
  if (differs == kept.rows.end()) return;
  const auto index = static_cast<std::size_t>(differs - kept.rows.begin());
  const auto num_physical = static_cast<std::size_t>(kept.num_physical);
  const RankId source(index / num_physical);
  fail_because_of(source, "plan: rank {} keeps {} rows for physical expert {}, rank {} grants it {}", source, *differs,
                  index % num_physical, self, *expected);
}

}  // namespace shunt
