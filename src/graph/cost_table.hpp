// Measured times of compute ops on the device, without what their launch costs, kept on disk between runs.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "graph/graph.hpp"

namespace shunt::graph {

/// Ops with equal keys take equally long: kind, sizes, element types, attributes but for numbers, whatever their
/// dimensions are called.
std::string cost_key(const Graph& graph, const Op& op);

class CostTable {
 public:
  explicit CostTable(std::string device) : device_(std::move(device)) {}

  [[nodiscard]] std::optional<double> find(const std::string& key) const;
  void set(const std::string& key, double seconds) { seconds_[key] = seconds; }
  [[nodiscard]] std::size_t size() const { return seconds_.size(); }
  /// How the times were measured, in words; may be empty.
  [[nodiscard]] const std::string& origin() const { return origin_; }

  /// Throws Error(invalid_argument) with source and key where the text is broken, of another version or another device.
  static CostTable from_json(const std::string& source, const std::string& text, const std::string& device);
  /// Throws as read_file and from_json.
  static CostTable load(const std::string& path, const std::string& device);
  /// Whole or not at all: written beside and renamed. Throws Error(system).
  void save(const std::string& path) const;

 private:
  std::string device_, origin_;
  std::map<std::string, double> seconds_;
};

}  // namespace shunt::graph
