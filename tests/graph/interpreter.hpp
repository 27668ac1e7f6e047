// Runs a graph on one rank in f64, slowly and obviously: what optimised graphs are compared with.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph::test {

struct Row {
  std::int64_t token, choice;
};

struct Tensor {
  std::vector<DimId> dims;
  std::vector<std::int64_t> sizes;  ///< of rows: as many as there are
  std::vector<double> data;
  std::vector<Row> rows;                 ///< of a plan: expert by expert, then token by token
  std::vector<std::int64_t> row_expert;  ///< of a plan
};

using Values = std::map<std::string, Tensor>;

/// Declarations (inputs, parameters, states) come from `given`, by name. Result: every value.
Values interpret(const Graph& graph, const Values& given);

/// Random values for every declaration; token ids are in range.
Values random_declarations(const Graph& graph, std::uint64_t seed);

/// |a − b| ≤ tolerance · |a| in the Euclidean norm.
[[nodiscard]] bool are_near(const Tensor& a, const Tensor& b, double tolerance);

}  // namespace shunt::graph::test
