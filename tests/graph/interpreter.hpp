// Runs a graph on all its ranks in f64, slowly and obviously: what optimised graphs are compared with.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph::test {

struct Row {
  std::size_t rank;  ///< whose token it is
  std::int64_t token, choice;
};

struct Tensor {
  std::vector<DimId> dims;
  std::vector<std::int64_t> sizes;  ///< of rows: as many as there are
  std::vector<double> data;
  std::vector<Row> rows;                 ///< of a plan: by expert, then rank, then token
  std::vector<std::int64_t> row_expert;  ///< of a plan: by row, which of this rank's
};

using Values = std::map<std::string, Tensor>;

using RankValues = std::vector<Values>;  ///< by rank

/// Declarations (inputs, parameters, states) come from `given`, by name. Result: every value.
RankValues interpret(const Graph& graph, const RankValues& given);

/// Random values for every declaration; token ids are in range. Ranks differ in their inputs and experts.
RankValues random_declarations(const Graph& graph, std::uint64_t seed);

/// Whether ranks hold the same values of this type: neither tokens nor experts of their own.
[[nodiscard]] bool is_replicated(const Graph& graph, const Op& declaration);

/// |a − b| ≤ tolerance · |a| in the Euclidean norm; where all of a cancels, but for what rounding leaves.
[[nodiscard]] bool are_near(const Tensor& a, const Tensor& b, double tolerance);

}  // namespace shunt::graph::test
