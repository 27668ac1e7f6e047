#include "placement/assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "placement/random.hpp"

namespace shunt {
namespace {

double worth_of(const std::vector<std::vector<double>>& worth, const std::vector<std::size_t>& column_of) {
  double sum = 0;
  for (std::size_t row = 0; row < worth.size(); ++row) sum += worth[row][column_of[row]];
  return sum;
}

TEST(BestAssignment, IsTheBestOfAllPermutations) {
  placement::Random random(1);
  for (int round = 0; round < 300; ++round) {
    const std::size_t n = 1 + random.below(6);
    std::vector<std::vector<double>> worth(n, std::vector<double>(n));
    for (auto& row : worth)
      for (double& value : row) value = static_cast<double>(random.below(9)) - 2;
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    double best = worth_of(worth, order);
    while (std::next_permutation(order.begin(), order.end())) best = std::max(best, worth_of(worth, order));
    const auto found = placement::best_assignment(worth);
    ASSERT_EQ(worth_of(worth, found), best);
    EXPECT_EQ(std::set<std::size_t>(found.begin(), found.end()).size(), n);
  }
}

}  // namespace
}  // namespace shunt
