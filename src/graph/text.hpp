// The text form of a graph; print and parse are inverse to each other.
//
//   graph tiny ranks 2
//   dim B = 4 batch
//   dim S = 8 sequence
//   dim X = 2 local_expert
//   dim R = 64 rows of X
//   dim T = B*S
//   %x = input() : f32[T,M] @forward
//   %y = matmul(%x, %w) {over=[M]} : f32[T,F] @3.forward
//   return %y
//
// Part 1 of 4 of dimension B is written B.1/4. # begins a comment.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.hpp"

namespace shunt::graph {

std::string print(const Graph& graph);
std::string print(const DimTable& dims, const Type& type);

/// Throws Error(invalid_argument) with `source`, line, column and what was expected.
Graph parse(std::string_view text, std::string_view source = "graph");

}  // namespace shunt::graph
