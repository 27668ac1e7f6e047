// Compute ops without a measured time, described so that they can be measured on the device.
#pragma once

#include <map>
#include <string>

#include "graph/graph.hpp"

namespace shunt::graph {

class UnmeasuredOps {
 public:
  void add(const std::string& key, const Graph& graph, const Op& op);
  [[nodiscard]] std::size_t size() const { return by_key_.size(); }

  /// The input of tools/measure_ops: for each op its key, kind, the types of operands and results, attributes and work.
  [[nodiscard]] std::string json(const std::string& device) const;

 private:
  std::map<std::string, std::string> by_key_;  // JSON
};

}  // namespace shunt::graph
