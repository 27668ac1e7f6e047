#include "core/cluster.hpp"

#include <algorithm>
#include <charconv>

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

/// "a100x64": the preset a100 with 64 ranks. 0 where the name has no such end.
std::int32_t ranks_in(const std::string& name, std::string& preset) {
  const auto x = name.rfind('x');
  std::int32_t ranks = 0;
  if (x == std::string::npos) return 0;
  const auto [end, error] = std::from_chars(name.data() + x + 1, name.data() + name.size(), ranks);
  if (error != std::errc{} || end != name.data() + name.size() || ranks < 1) return 0;
  preset = name.substr(0, x);
  return ranks;
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

Cluster Cluster::load(const std::string& name_or_file) {
  std::string preset;
  const std::int32_t ranks = ranks_in(name_or_file, preset);
  const auto all = cluster_presets();
  const bool is_preset =
      ranks > 0 && std::any_of(all.begin(), all.end(), [&](const Preset& each) { return each.name == preset; });
  const Description description = load_description("cluster", all, is_preset ? preset : name_or_file);
  Cluster cluster = from_json(description.source, description.text);
  if (!is_preset) return cluster;
  if (ranks > cluster.ranks_per_node && ranks % cluster.ranks_per_node != 0)
    fail(ErrorCode::invalid_argument, "cluster {}: {} ranks fill no whole nodes of {}", name_or_file, ranks,
         cluster.ranks_per_node);
  if (ranks / cluster.ranks_per_node > kMostNodes)
    fail(ErrorCode::invalid_argument, "cluster {}: more than {} nodes", name_or_file, kMostNodes);
  cluster.name = name_or_file;
  cluster.nodes = std::max(1, ranks / cluster.ranks_per_node);
  cluster.ranks_per_node = std::min(ranks, cluster.ranks_per_node);
  return cluster;
}

}  // namespace shunt
