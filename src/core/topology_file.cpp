// Topology::from_file. The file is JSON: {"nodes": [[0, 1], [2, 3]]}, the ranks of each node.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/topology.hpp"

namespace shunt {
namespace {

using nlohmann::json;

constexpr const char* kExpected = R"(expected {"nodes": [[0, 1], [2, 3]]}, the ranks of each node)";

json parse(const std::string& path, const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    fail(ErrorCode::invalid_argument, "{}:{}: no JSON at byte {} of the file; {}", path,
         1 + std::count(text.begin(), end, '\n'), error.byte, kExpected);
  }
}

const json& nodes_of(const std::string& path, const json& file) {
  if (!file.is_object() || !file.contains("nodes") || !file["nodes"].is_array() || file["nodes"].empty())
    fail(ErrorCode::invalid_argument, "{}: {}", path, kExpected);
  for (const auto& [key, value] : file.items())
    if (key != "nodes") fail(ErrorCode::invalid_argument, "{}: \"{}\" means nothing here; {}", path, key, kExpected);
  return file["nodes"];
}

std::size_t count_ranks(const std::string& path, const json& nodes) {
  std::size_t num_ranks = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (!nodes[node].is_array() || nodes[node].empty())
      fail(ErrorCode::invalid_argument, "{}: nodes[{}]: expected a list of ranks", path, node);
    num_ranks += nodes[node].size();
  }
  return num_ranks;
}

}  // namespace

Topology Topology::from_file(const std::string& path) {
  const json file = parse(path, read_file(path));
  const json& nodes = nodes_of(path, file);
  std::vector<NodeId> node_of(count_ranks(path, nodes));
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (std::size_t i = 0; i < nodes[node].size(); ++i) {
      const json& rank = nodes[node][i];
      // So many ranks stand here that each of these must be among them.
      if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() >= node_of.size())
        fail(ErrorCode::invalid_argument, "{}: nodes[{}][{}]: {}, expected a rank from 0 to {}", path, node, i,
             rank.dump(), node_of.size() - 1);
      NodeId& known = node_of[rank.get<std::size_t>()];
      if (known.valid())
        fail(ErrorCode::invalid_argument, "{}: nodes[{}][{}]: rank {} is in nodes[{}] already", path, node, i,
             rank.dump(), known);
      known = NodeId(node);
    }
  }
  return from_nodes(std::move(node_of));
}

}  // namespace shunt
