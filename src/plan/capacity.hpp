// The capacity limit: a physical expert accepts its first rows in slot order, the rest is dropped.
#pragma once

#include "plan/counts.hpp"

namespace shunt {

/// Lowers the rows of each (source, expert) to what the expert keeps of them: earlier sources are served first.
void clamp_rows(GlobalCounts& counts, std::int64_t capacity);

/// Throws PeerError unless every rank kept as many rows as `clamped` grants it.
void check_kept(const GlobalCounts& kept, const GlobalCounts& clamped, RankId self);

}  // namespace shunt
