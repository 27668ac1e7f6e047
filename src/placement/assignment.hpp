// Pairs rows with columns such that the total worth of the pairs is maximal.
#pragma once

#include <cstdint>
#include <vector>

namespace shunt::placement {

/// worth: a square matrix. Returns the column of each row. The Hungarian method with potentials, O(n³).
std::vector<std::size_t> best_assignment(const std::vector<std::vector<double>>& worth);

}  // namespace shunt::placement
