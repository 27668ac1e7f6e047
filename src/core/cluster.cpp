#include "core/cluster.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/fail.hpp"
#include "core/json_fields.hpp"

namespace shunt {
namespace {

constexpr double kMicrosecond = 1e-6, kTera = 1e12, kGiga = 1e9;
constexpr std::int32_t kMostNodes = 1 << 16;

Curve curve(JsonFields& fields, const std::string& key) {
  Curve points = fields.points(key);
  for (auto& [bytes, time] : points) time *= kMicrosecond;
  return points;
}

/// A preset with its number of ranks replaced; the number may be out of range.
struct SizedPreset {
  std::string preset;
  std::int64_t ranks;
};

/// Parses names such as "a100x64". None unless the name is a preset's, an x and digits.
std::optional<SizedPreset> find_sized_preset(const std::string& name) {
  const auto x = name.rfind('x');
  if (x == std::string::npos) return std::nullopt;
  const std::string preset = name.substr(0, x), digits = name.substr(x + 1);
  const auto all = cluster_presets();
  if (std::none_of(all.begin(), all.end(), [&](const Preset& each) { return each.name == preset; }) || digits.empty() ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  std::int64_t ranks = INT64_MAX;  // if there are too many digits
  std::from_chars(digits.data(), digits.data() + digits.size(), ranks);
  return SizedPreset{preset, ranks};
}

}  // namespace

Cluster Cluster::from_json(const std::string& source, const std::string& text) {
  JsonFields fields(source, "", parse_json(source, text));
  Cluster cluster;
  cluster.name = fields.text("name");
  cluster.origin = fields.text("origin", "");
  cluster.device = fields.text("device");
  cluster.nodes = static_cast<std::int32_t>(fields.integer("nodes", 1, kMostNodes));
  cluster.ranks_per_node = static_cast<std::int32_t>(fields.integer("ranks_per_node", 1, 1 << 10));
  cluster.f32_flops = fields.real("f32_tflops", 1e-6, 1e6) * kTera;
  cluster.half_flops = fields.real("half_tflops", 1e-6, 1e6) * kTera;
  cluster.memory_bytes_per_s = fields.real("memory_gbps", 1e-6, 1e6) * kGiga;
  cluster.processors = fields.integer("processors", 1, 1 << 20);
  cluster.tile = fields.integer("tile", 1, 1 << 12, 128);
  cluster.kernel_s = fields.real("kernel_us", 0, 1e6) * kMicrosecond;
  cluster.near_bytes_per_s = fields.real("near_gbps", 1e-6, 1e6) * kGiga;
  const double nics = static_cast<double>(fields.integer("nics_per_node", 1, 1 << 10));
  cluster.far_bytes_per_s =
      nics * fields.real("nic_gbits", 1e-6, 1e6) / 8 * kGiga * fields.real("nic_efficiency", 1e-3, 1);
  cluster.all_to_all_s = fields.real("all_to_all_us", 0, 1e6) * kMicrosecond;
  cluster.all_reduce_s = fields.real("all_reduce_us", 0, 1e6) * kMicrosecond;
  cluster.all_to_all = curve(fields, "all_to_all_points");
  cluster.all_reduce = curve(fields, "all_reduce_points");
  cluster.comm_workers = static_cast<std::int32_t>(fields.integer("comm_workers", 1, 64, 2));
  cluster.compute_slowdown = fields.real("compute_slowdown", 1, 100);
  cluster.comm_slowdown = fields.real("comm_slowdown", 1, 100, 1.0);
  fields.end();
  return cluster;
}

Cluster Cluster::load(const std::string& name_or_file, const std::string& also) {
  const std::optional<SizedPreset> sized = find_sized_preset(name_or_file);
  const Description description = load_description("cluster", cluster_presets(), sized ? sized->preset : name_or_file,
                                                   ", one of these with N ranks (v100xN)" + also);
  Cluster cluster = from_json(description.source, description.text);
  if (!sized) return cluster;
  const std::int64_t most = std::int64_t{kMostNodes} * cluster.ranks_per_node;
  if (sized->ranks < 1 || sized->ranks > most)
    fail(ErrorCode::invalid_argument, "cluster {}: expected 1 to {} ranks", name_or_file, most);
  const auto ranks = static_cast<std::int32_t>(sized->ranks);
  if (ranks > cluster.ranks_per_node && ranks % cluster.ranks_per_node != 0)
    fail(ErrorCode::invalid_argument, "cluster {}: {} ranks fill no whole nodes of {}", name_or_file, ranks,
         cluster.ranks_per_node);
  cluster.name = name_or_file;
  cluster.nodes = std::max(1, ranks / cluster.ranks_per_node);
  cluster.ranks_per_node = std::min(ranks, cluster.ranks_per_node);
  return cluster;
}

}  // namespace shunt
