// Compares the results of two graphs on every rank: the loss and every updated parameter and state.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "graph/interpreter.hpp"

namespace shunt::graph::test {

/// tolerance 0: bit for bit.
inline void expect_same_meaning(const Graph& expected, const Graph& actual, double tolerance, const std::string& what) {
  const RankValues given = random_declarations(expected, 11);
  const RankValues all = interpret(expected, given), other = interpret(actual, given);
  std::vector<std::string> names;
  for (const ValueId output : expected.outputs) names.push_back(expected.value(output).name);
  for (const Op& op : expected.ops())
    if (op.origin.phase == Phase::update)
      for (const ValueId result : op.results) names.push_back(expected.value(result).name);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const std::string& name : names) {
      const Tensor& a = all[rank].at(name);
      ASSERT_TRUE(other[rank].contains(name)) << what << ": " << name;
      const Tensor& b = other[rank].at(name);
      if (tolerance == 0) {
        ASSERT_EQ(a.data, b.data) << what << ": " << name << " of rank " << rank;
      } else {
        ASSERT_TRUE(are_near(a, b, tolerance)) << what << ": " << name << " of rank " << rank;
      }
    }
}

}  // namespace shunt::graph::test
