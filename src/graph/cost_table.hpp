// Measured times of compute ops on a device, without launch overhead, stored on disk; and the ops that have none.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "graph/graph.hpp"

namespace shunt::graph {

/// Ops with equal keys take the same time: kind, sizes, element types and non-numeric attributes are equal; names of
/// dimensions don't matter.
std::string cost_key(const Graph& graph, const Op& op);

class CostTable {
 public:
  explicit CostTable(std::string device) : device_(std::move(device)) {}

  [[nodiscard]] std::optional<double> find(const std::string& key) const;
  void set(const std::string& key, double seconds) { seconds_[key] = seconds; }
  [[nodiscard]] std::size_t size() const { return seconds_.size(); }
  /// How the times were measured, for human readers; may be empty.
  [[nodiscard]] const std::string& origin() const { return origin_; }

  /// Throws Error(invalid_argument) with source and key if the text is invalid, or of another version or device.
  static CostTable from_json(const std::string& source, const std::string& text, const std::string& device);
  /// Throws as read_file and from_json.
  static CostTable load(const std::string& path, const std::string& device);
  /// Atomic: written beside the target and renamed. Throws Error(system).
  void save(const std::string& path) const;

 private:
  std::string device_, origin_;
  std::map<std::string, double> seconds_;
};

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
