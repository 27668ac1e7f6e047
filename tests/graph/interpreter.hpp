// Executes a graph on all its ranks in f64, in a simple and slow way, as the reference for optimised graphs.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph::test {

struct Row {
  std::size_t rank;  ///< of the token
  std::int64_t token, choice;
};

struct Tensor {
  std::vector<DimId> dims;
  std::vector<std::int64_t> sizes;  ///< of dimensions; for rows, their actual number
  std::vector<double> data;
  std::vector<Row> rows;                 ///< for a plan: by expert, then rank, then token
  std::vector<std::int64_t> row_expert;  ///< for a plan: by row, the local expert
};

using Values = std::map<std::string, Tensor>;

using RankValues = std::vector<Values>;  ///< by rank

/// given: values of declarations (inputs, parameters, states), by name. Returns all values.
RankValues interpret(const Graph& graph, const RankValues& given);

/// Random values for every declaration; token ids are in range. Ranks differ in their inputs and experts.
RankValues random_declarations(const Graph& graph, std::uint64_t seed);

/// True if all ranks hold the same values of this type, because it has neither tokens nor experts of one rank.
[[nodiscard]] bool is_replicated(const Graph& graph, const Op& declaration);

/// |a − b| ≤ tolerance · |a| in the Euclidean norm, or within rounding errors if all of a cancels.
[[nodiscard]] bool are_near(const Tensor& a, const Tensor& b, double tolerance);

}  // namespace shunt::graph::test
