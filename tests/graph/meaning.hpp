// Whether two graphs compute the same: the loss and every updated parameter and state.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "graph/interpreter.hpp"

namespace shunt::graph::test {

/// tolerance 0: bit for bit.
inline void expect_same_meaning(const Graph& expected, const Graph& actual, double tolerance, const std::string& what) {
  const Values given = random_declarations(expected, 11);
  const Values a = interpret(expected, given), b = interpret(actual, given);
  std::vector<std::string> names;
  for (const ValueId output : expected.outputs) names.push_back(expected.value(output).name);
  for (const Op& op : expected.ops())
    if (op.origin.phase == Phase::update)
      for (const ValueId result : op.results) names.push_back(expected.value(result).name);
  for (const std::string& name : names) {
    ASSERT_TRUE(b.contains(name)) << what << ": " << name;
    if (tolerance == 0) {
      ASSERT_EQ(a.at(name).data, b.at(name).data) << what << ": " << name;
    } else {
      ASSERT_TRUE(are_near(a.at(name), b.at(name), tolerance)) << what << ": " << name;
    }
  }
}

}  // namespace shunt::graph::test
