#include "runtime/checkpoint.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/fail.hpp"
#include "core/file.hpp"

namespace shunt::runtime {
namespace {

using graph::DimRole;
using graph::Op;
using graph::OpKind;

constexpr std::size_t kMostBytes = std::size_t{1} << 36;

/// The begin of a file: followed by the description, as JSON, then by the values' elements.
struct Prefix {
  char magic[16] = {'s', 'h', 'u', 'n', 't', ' ', 'c', 'h', 'e', 'c', 'k', 'p', 'o', 'i', 'n', 't'};
  std::uint32_t version = 1;
  std::uint32_t unused = 0;
  std::uint64_t description_bytes = 0, data_bytes = 0;
  std::uint64_t checksum = 0;  ///< of all that follows: XXH3, 64 bits, seed 0
};

/// A value that outlives steps.
struct Lasting {
  std::string name;
  std::size_t count = 0;    ///< elements on this rank
  std::size_t experts = 0;  ///< of this rank, along the first dimension; 0: the same on all ranks
  std::size_t all_experts = 0;

  [[nodiscard]] std::size_t total() const { return experts > 0 ? count / experts * all_experts : count; }
};

std::vector<Lasting> lasting_values(const graph::Graph& graph) {
  std::size_t all_experts = 0;
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::plan)
      all_experts = static_cast<std::size_t>(graph.dims[op.attributes.dims("expert")[0]].size);
  std::vector<Lasting> values;
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::param && op.kind != OpKind::state) continue;
    const auto& dims = graph.type(op.results[0]).dims;
    Lasting value{graph.value(op.results[0]).name, static_cast<std::size_t>(graph.dims.count(dims)), 0, 0};
    if (!dims.empty() && graph.dims[dims[0]].role == DimRole::local_expert) {
      value.experts = static_cast<std::size_t>(graph.dims[dims[0]].size);
      value.all_experts = all_experts;
    }
    values.push_back(std::move(value));
  }
  std::ranges::sort(values, {}, &Lasting::name);
  return values;
}

nlohmann::ordered_json describe(const TrainingState& state, const std::vector<Lasting>& values) {
  nlohmann::ordered_json json = {{"model", state.model}, {"sequences", state.sequences}, {"sequence", state.sequence},
                                 {"seed", state.seed},   {"corpus", state.corpus},       {"steps", state.steps}};
  for (const Lasting& value : values) json["values"].push_back({{"name", value.name}, {"elements", value.total()}});
  return json;
}

/// A value of all experts, by logical number, on every rank.
std::vector<float> gather_experts(World& world, const ExpertMap& map, const Lasting& value, const std::byte* mine) {
  const std::size_t size = value.count / value.experts;
  std::vector<float> all(value.total());
  const auto of_ranks = world.all_gather({mine, value.count * sizeof(float)});
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const std::vector<ExpertId> experts = experts_of(map, RankId(rank));
    if (of_ranks[rank].size() != experts.size() * size * sizeof(float))
      fail(ErrorCode::mismatch, "rank {} published {} bytes of %{}, expected {}", rank, of_ranks[rank].size(),
           value.name, experts.size() * size * sizeof(float));
    for (std::size_t i = 0; i < experts.size(); ++i)
      std::memcpy(all.data() + experts[i].index() * size, of_ranks[rank].data() + i * size * sizeof(float),
                  size * sizeof(float));
  }
  return all;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  fail(ErrorCode::invalid_argument, "{}: {}", path, why);
}

struct File {
  std::string bytes;
  nlohmann::json description;
  std::span<const char> data;
  TrainingState state;
};

File read(const std::string& path) {
  File file{read_file(path, kMostBytes), {}, {}, {}};
  Prefix prefix;
  if (file.bytes.size() < sizeof(prefix) || std::memcmp(file.bytes.data(), prefix.magic, sizeof(prefix.magic)) != 0)
    refuse(path, "is no checkpoint of shunt");
  std::memcpy(&prefix, file.bytes.data(), sizeof(prefix));
  if (prefix.version != Prefix().version)
    refuse(path, fmt::format("is a checkpoint of version {}, expected {}", prefix.version, Prefix().version));
  const std::span<const char> content = std::span<const char>(file.bytes).subspan(sizeof(prefix));
  if (prefix.description_bytes > content.size() || prefix.data_bytes != content.size() - prefix.description_bytes)
    refuse(path, fmt::format("is damaged: it has {} bytes, and its begin says {} and {}", content.size(),
                             prefix.description_bytes, prefix.data_bytes));
  if (XXH3_64bits(content.data(), content.size()) != prefix.checksum)
    refuse(path, "is damaged: its checksum is another one");
  const auto text = content.first(prefix.description_bytes);
  file.data = content.subspan(prefix.description_bytes);
  try {
    file.description = nlohmann::json::parse(text.begin(), text.end());
    const auto& json = file.description;
    file.state = {json.at("model"),  json.at("sequences"), json.at("sequence"), json.at("seed"),
                  json.at("corpus"), json.at("steps"),     prefix.checksum};
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("has a description that can't be read: {}", error.what()));
  }
  return file;
}

}  // namespace

void agree(World& world, const std::string& failure, ErrorCode code) {
  for (const auto& text : world.all_gather(std::as_bytes(std::span(failure))))
    if (!text.empty()) fail(code, "{}", std::string_view(reinterpret_cast<const char*>(text.data()), text.size()));
}

std::vector<ExpertId> experts_of(const ExpertMap& map, RankId rank) {
  std::vector<ExpertId> experts;
  for (std::int32_t i = 0; i < map.num_local(rank); ++i)
    experts.push_back(map.logical(PhysicalId(map.first_physical(rank).value + i)));
  return experts;
}

void save_checkpoint(World& world, const graph::Graph& graph, Store& store, const ExpertMap& map,
                     const TrainingState& state, const std::string& path) {
  const std::vector<Lasting> values = lasting_values(graph);
  std::string content = describe(state, values).dump();
  Prefix prefix;
  prefix.description_bytes = content.size();
  for (const Lasting& value : values) {
    const std::byte* const mine = store.memory(value.name, value.count);
    if (value.experts > 0) {
      const std::vector<float> all = gather_experts(world, map, value, mine);
      content.append(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
    } else {
      content.append(reinterpret_cast<const char*>(mine), value.count * sizeof(float));
    }
  }
  std::string failure;
  if (world.rank().value == 0) {
    prefix.data_bytes = content.size() - prefix.description_bytes;
    prefix.checksum = XXH3_64bits(content.data(), content.size());
    try {
      PartialFile file(path);
      file.write_at(0, std::as_bytes(std::span(&prefix, 1)));
      file.write_at(sizeof(prefix), std::as_bytes(std::span(content)));
      file.complete();
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  agree(world, failure, ErrorCode::system);
}

TrainingState load_checkpoint(const graph::Graph& graph, Store& store, std::span<const ExpertId> experts,
                              const std::string& path) {
  const File file = read(path);
  const char* next = file.data.data();
  std::map<std::string, std::pair<const char*, std::size_t>> stored;  // elements
  try {
    for (const auto& value : file.description.at("values")) {
      const std::size_t elements = value.at("elements");
      if (elements > static_cast<std::size_t>(file.data.data() + file.data.size() - next) / sizeof(float))
        refuse(path, "has less data than its description says");
      stored[value.at("name")] = {next, elements};
      next += elements * sizeof(float);
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("has a description that can't be read: {}", error.what()));
  }
  for (const Lasting& value : lasting_values(graph)) {
    const auto found = stored.find(value.name);
    if (found == stored.end() || found->second.second != value.total())
      refuse(path, fmt::format("is of another model: it has {} elements of %{}, expected {}",
                               found == stored.end() ? 0 : found->second.second, value.name, value.total()));
    std::byte* const mine = store.memory(value.name, value.count);
    if (value.experts == 0) {
      std::memcpy(mine, found->second.first, value.count * sizeof(float));
      continue;
    }
    const std::size_t bytes = value.count / value.experts * sizeof(float);
    for (std::size_t i = 0; i < experts.size(); ++i)
      std::memcpy(mine + i * bytes, found->second.first + experts[i].index() * bytes, bytes);
  }
  return file.state;
}

TrainingState read_training_state(const std::string& path) { return read(path).state; }

}  // namespace shunt::runtime
