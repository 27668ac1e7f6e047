#include "shunt/expert_map_file.hpp"

#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json_fields.hpp"

namespace shunt {
namespace {

using nlohmann::json;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostExperts = 1 << 20, kMostNodes = 1 << 16, kMostRanksPerNode = 1 << 10;

/// Part of the file format, so it must not change.
std::string hash_of(const PlacedLayers& maps) {
  Hasher hasher;
  for (const std::int32_t number : {maps.experts, maps.nodes, maps.ranks_per_node}) hasher.add(number);
  hasher.add(maps.layers.size());
  for (const ExpertMap& map : maps.layers) {
    for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) hasher.add(map.num_local(RankId(rank)));
    for (std::int32_t copy = 0; copy < map.num_physical(); ++copy)
      hasher.add(map.logical(PhysicalId(copy)).index(), map.share(PhysicalId(copy)));
  }
  return fmt::format("{:016x}", hasher.value());
}

/// Reads lists of integers, one per rank. what: names the numbers in messages.
std::vector<std::vector<std::int32_t>> read_lists(JsonFields& layer, const std::string& key, std::int64_t ranks,
                                                  std::int64_t least, std::int64_t most, const char* what) {
  const json& of_ranks = layer.list(key);
  if (of_ranks.size() != static_cast<std::size_t>(ranks))
    layer.refuse(key, fmt::format("lists of {} ranks, expected {} (nodes × ranks_per_node)", of_ranks.size(), ranks));
  std::vector<std::vector<std::int32_t>> lists(of_ranks.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (!of_ranks[rank].is_array()) layer.refuse(fmt::format("{}[{}]", key, rank), "expected a list");
    for (const json& number : of_ranks[rank]) {
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() < static_cast<std::uint64_t>(least) ||
          number.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
        layer.refuse(fmt::format("{}[{}][{}]", key, rank, lists[rank].size()),
                     fmt::format("expected {} from {} to {}", what, least, most));
      lists[rank].push_back(number.get<std::int32_t>());
    }
  }
  return lists;
}

ExpertMap read_layer(JsonFields layer, const PlacedLayers& maps) {
  std::vector<std::vector<ExpertId>> placement;
  for (const auto& experts : read_lists(layer, "ranks", maps.ranks(), 0, maps.experts - 1, "an expert")) {
    placement.emplace_back();
    for (const std::int32_t expert : experts) placement.back().emplace_back(expert);
  }
  ExpertMap::Shares shares;
  if (layer.has("shares")) shares = read_lists(layer, "shares", maps.ranks(), 1, ExpertMap::kMaxShare, "a share");
  layer.end();
  try {
    return ExpertMap::from_placement(maps.experts, placement, shares);
  } catch (const Error& error) {
    layer.refuse("ranks", error.what());
  }
}

std::string line_of(const ExpertMap& map, RankId rank, bool shares) {
  std::vector<std::int32_t> numbers;
  for (std::int32_t i = 0; i < map.num_local(rank); ++i) {
    const PhysicalId copy(map.first_physical(rank).value + i);
    numbers.push_back(shares ? map.share(copy) : map.logical(copy).value);
  }
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string lines_of(const ExpertMap& map, bool shares) {
  std::vector<std::string> lines;
  for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) lines.push_back(line_of(map, RankId(rank), shares));
  return fmt::format("[\n    {}]", fmt::join(lines, ",\n    "));
}

bool has_shares(const ExpertMap& map) {
  for (std::int32_t copy = 0; copy < map.num_physical(); ++copy)
    if (map.share(PhysicalId(copy)) != 1) return true;
  return false;
}

/// Throws the Error that from_json would throw for these maps.
void check(const PlacedLayers& maps) {
  const auto demand = [](bool holds, const char* what, const std::string& expected) {
    if (!holds) fail(ErrorCode::invalid_argument, "expert maps: {}: expected {}", what, expected);
  };
  const auto in = [](std::int32_t value, std::int64_t most) { return value >= 1 && value <= most; };
  demand(in(maps.experts, kMostExperts), "experts", fmt::format("1 to {}", kMostExperts));
  demand(in(maps.nodes, kMostNodes), "nodes", fmt::format("1 to {}", kMostNodes));
  demand(in(maps.ranks_per_node, kMostRanksPerNode), "ranks_per_node", fmt::format("1 to {}", kMostRanksPerNode));
  demand(!maps.layers.empty(), "layers", "at least one");
  for (std::size_t layer = 0; layer < maps.layers.size(); ++layer)
    if (const ExpertMap& map = maps.layers[layer]; map.num_experts() != maps.experts || map.num_ranks() != maps.ranks())
      fail(ErrorCode::invalid_argument, "expert maps: layer {} has {} experts on {} ranks, expected {} on {}", layer,
           map.num_experts(), map.num_ranks(), maps.experts, maps.ranks());
}

}  // namespace

PlacedLayers PlacedLayers::from_json(const std::string& source, const std::string& text) {
  JsonFields fields(source, "", parse_json(source, text));
  if (!fields.has("shunt_map"))
    fail(ErrorCode::invalid_argument, "{}: no file of expert maps: shunt_map is missing", source);
  if (const std::int64_t version = fields.integer("shunt_map", 1, INT32_MAX); version > kVersion)
    fields.refuse("shunt_map", fmt::format("version {} of the format; this release reads {}", version, kVersion));
  PlacedLayers maps;
  maps.origin = fields.text("origin", "");
  maps.experts = static_cast<std::int32_t>(fields.integer("experts", 1, kMostExperts));
  maps.nodes = static_cast<std::int32_t>(fields.integer("nodes", 1, kMostNodes));
  maps.ranks_per_node = static_cast<std::int32_t>(fields.integer("ranks_per_node", 1, kMostRanksPerNode));
  const std::string hash = fields.text("hash");
  const json& layers = fields.list("layers");
  fields.end();
  if (layers.empty()) fields.refuse("layers", "expected at least one");
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    maps.layers.push_back(read_layer({source, fmt::format("layers[{}]", layer), layers[layer]}, maps));
  if (const std::string actual = hash_of(maps); hash != actual)
    fields.refuse("hash",
                  fmt::format("\"{}\", but these maps have \"{}\": they were changed or damaged", hash, actual));
  return maps;
}

std::string PlacedLayers::to_json() const {
  check(*this);
  std::vector<std::string> entries;
  for (const ExpertMap& map : layers) {
    const std::string shares = has_shares(map) ? fmt::format(",\n   \"shares\": {}", lines_of(map, true)) : "";
    entries.push_back(fmt::format("  {{\"ranks\": {}{}}}", lines_of(map, false), shares));
  }
  // Invalid UTF-8 in the origin is replaced, because such text could not be read back.
  const std::string quoted = json(origin).dump(-1, ' ', false, json::error_handler_t::replace);
  return fmt::format(
      "{{\"shunt_map\": {},\n \"origin\": {},\n \"experts\": {}, \"nodes\": {}, \"ranks_per_node\": {},\n"
      " \"layers\": [\n{}],\n \"hash\": \"{}\"}}\n",
      kVersion, quoted, experts, nodes, ranks_per_node, fmt::join(entries, ",\n"), hash_of(*this));
}

PlacedLayers read_maps(const std::string& path) { return PlacedLayers::from_json(path, read_file(path)); }

void write_maps(const std::string& path, const PlacedLayers& maps) {
  const std::string text = maps.to_json();
  if (text.size() > kMostTextBytes)
    fail(ErrorCode::invalid_argument, "{}: maps of {} bytes, expected at most {}", path, text.size(), kMostTextBytes);
  write_file(path, text);
}

}  // namespace shunt
