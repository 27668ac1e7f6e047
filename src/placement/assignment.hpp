// Pairs rows with columns so that the sum of what the pairs are worth is largest.
#pragma once

#include <cstdint>
#include <vector>

namespace shunt::placement {

/// worth: square. Result: the column of each row. The Hungarian method with potentials, O(n³).
std::vector<std::size_t> best_assignment(const std::vector<std::vector<double>>& worth);

}  // namespace shunt::placement
