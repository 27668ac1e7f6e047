#include "placement/assignment.hpp"

#include <limits>

namespace shunt::placement {

std::vector<std::size_t> best_assignment(const std::vector<std::vector<double>>& worth) {
  const std::size_t n = worth.size();
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  // Costs are negated worths. Row and column potentials keep reduced costs non-negative; column n is a virtual start.
  std::vector<double> row_potential(n), column_potential(n + 1);
  std::vector<std::size_t> row_of(n + 1, kNone);
  for (std::size_t row = 0; row < n; ++row) {
    row_of[n] = row;
    std::size_t column = n;
    std::vector<double> slack(n, std::numeric_limits<double>::infinity());
    std::vector<std::size_t> came_from(n, n);
    std::vector<bool> is_visited(n + 1);
    while (row_of[column] != kNone) {
      is_visited[column] = true;
      const std::size_t at = row_of[column];
      double least = std::numeric_limits<double>::infinity();
      std::size_t next = n;
      for (std::size_t other = 0; other < n; ++other) {
        if (is_visited[other]) continue;
        const double reduced = -worth[at][other] - row_potential[at] - column_potential[other];
        if (reduced < slack[other]) {
          slack[other] = reduced;
          came_from[other] = column;
        }
        if (slack[other] < least) {
          least = slack[other];
          next = other;
        }
      }
      for (std::size_t other = 0; other <= n; ++other) {
        if (is_visited[other]) {
          row_potential[row_of[other]] += least;
          column_potential[other] -= least;
        } else if (other < n) {
          slack[other] -= least;
        }
      }
      column = next;
    }
    while (column != n) {
      row_of[column] = row_of[came_from[column]];
      column = came_from[column];
    }
  }
  std::vector<std::size_t> column_of(n);
  for (std::size_t column = 0; column < n; ++column) column_of[row_of[column]] = column;
  return column_of;
}

}  // namespace shunt::placement
