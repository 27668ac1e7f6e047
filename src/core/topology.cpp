#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "shunt/topology.hpp"

namespace shunt {
namespace {

void check_size(std::int64_t num_ranks) {
  if (num_ranks > Topology::kMaxRanks)
    fail(ErrorCode::invalid_argument, "topology: {} ranks, expected at most {}", num_ranks, Topology::kMaxRanks);
}

}  // namespace

Topology Topology::single_node(std::int32_t num_ranks) { return virtual_nodes(num_ranks, 1); }

Topology Topology::virtual_nodes(std::int32_t num_ranks, std::int32_t num_nodes) {
  check_size(num_ranks);
  if (num_nodes < 1 || num_nodes > num_ranks)
    fail(ErrorCode::invalid_argument, "topology: {} nodes for {} ranks, expected 1 to {}", num_nodes, num_ranks,
         num_ranks);
  std::vector<NodeId> nodes;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank)
    nodes.emplace_back(static_cast<std::int32_t>(rank * num_nodes / num_ranks));
  return from_nodes(std::move(nodes));
}

Topology Topology::from_nodes(std::vector<NodeId> nodes) {
  if (nodes.empty()) fail(ErrorCode::invalid_argument, "topology: no ranks");
  check_size(static_cast<std::int64_t>(nodes.size()));
  Topology topology;
  topology.num_nodes_ = std::max_element(nodes.begin(), nodes.end())->value + 1;
  for (std::int32_t node = 0; node < topology.num_nodes_; ++node)
    if (std::find(nodes.begin(), nodes.end(), NodeId(node)) == nodes.end())
      fail(ErrorCode::invalid_argument, "topology: node {} has no rank, though node {} has", node,
           topology.num_nodes_ - 1);
  if (std::min_element(nodes.begin(), nodes.end())->value < 0)
    fail(ErrorCode::invalid_argument, "topology: a rank has a negative node");
  topology.node_ = std::move(nodes);
  topology.index_in_node_.resize(topology.node_.size());
  for (std::int32_t node = 0; node < topology.num_nodes_; ++node) {
    topology.first_rank_.push_back(topology.ranks_.size());
    for (std::size_t rank = 0; rank < topology.node_.size(); ++rank) {
      if (topology.node_[rank] != NodeId(node)) continue;
      topology.index_in_node_[rank] = topology.ranks_.size() - topology.first_rank_.back();
      topology.ranks_.emplace_back(rank);
    }
  }
  topology.first_rank_.push_back(topology.ranks_.size());
  return topology;
}

Topology Topology::subset(std::span<const RankId> ranks) const {
  std::vector<std::int32_t> new_number(static_cast<std::size_t>(num_nodes_), -1);
  for (const RankId rank : ranks) new_number[node(rank).index()] = 0;
  std::int32_t next = 0;
  for (std::int32_t& number : new_number)
    if (number == 0) number = next++;
  std::vector<NodeId> nodes;
  for (const RankId rank : ranks) nodes.emplace_back(new_number[node(rank).index()]);
  return from_nodes(std::move(nodes));
}

std::uint64_t Topology::hash() const {
  Hasher hasher;
  for (const NodeId node : node_) hasher.add(node.index());
  return hasher.value();
}

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
      // The file lists node_of.size() ranks, so each must be below that.
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
