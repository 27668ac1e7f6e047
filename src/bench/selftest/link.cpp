#include "bench/selftest/link.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/selftest/far_processes.hpp"
#include "transport/far/make_carrier.hpp"

namespace shunt::bench::selftest {
namespace {

constexpr std::array kLayouts = {Layout::expert_major, Layout::token_unique, Layout::padded};
constexpr std::array kDTypes = {f32, bf16, f16, fp8_e4m3};

bool offers(const Link& link, Feature feature) { return support_of(feature).of(link.kind()); }

Environment environment_of(const Link& link, std::chrono::milliseconds deadline) {
  Environment environment = Environment::read();
  environment.deadline = environment.join = deadline;
  environment.topology_file.clear();
  environment.virtual_nodes = 1;
  if (link.way != Way::tcp && link.way != Way::ucx) return environment;
  environment.network.kind = to_string(link.way);
  environment.network.interface = "lo";
  environment.network.port_range.clear();
  // UCX then finds the RDMA devices by itself.
  const bool has_rdma = link.way == Way::ucx && !far::rdma_devices("").empty();
  environment.network.devices = has_rdma ? "" : "lo";
  return environment;
}

}  // namespace

std::string_view to_string(Way way) {
  switch (way) {
    case Way::threads: return "threads";
    case Way::processes: return "processes";
    case Way::islands: return "islands";
    case Way::tcp: return "tcp";
    case Way::ucx: return "ucx";
  }
  return "unknown";
}

std::string_view explain(Way way) {
  switch (way) {
    case Way::threads: return "ranks are threads of one process";
    case Way::processes: return "ranks are processes that map each other's memory";
    case Way::islands: return "ranks are threads, and nodes share no memory";
    case Way::tcp: return "ranks are processes, and nodes are joined by TCP over the loopback interface";
    case Way::ucx: return "the same by UCX, over RDMA devices where there are some";
  }
  return "";
}

std::string Link::name() const {
  if (devices.empty()) return std::string(to_string(way));
  if (devices.size() == 1) return fmt::format("gpu {}, {}", devices[0], to_string(way));
  const auto is_gap = [](std::int32_t a, std::int32_t b) { return b != a + 1; };
  if (std::ranges::adjacent_find(devices, is_gap) == devices.end())
    return fmt::format("gpus {}-{}, {}", devices.front(), devices.back(), to_string(way));
  return fmt::format("gpus {}, {}", fmt::join(devices, ","), to_string(way));
}

EngineKind Link::kind() const {
  return devices.empty() ? EngineKind::host : is_far() ? EngineKind::cluster : EngineKind::node;
}

Place Link::place_of(RankId rank) const {
  if (devices.empty()) return {.kind = kind()};
  return {.kind = kind(), .device = devices[rank.index() % devices.size()]};
}

void spawn(const Link& link, std::int32_t ranks, std::chrono::milliseconds deadline,
           const std::function<void(World&)>& body) {
  const Topology topology = Topology::virtual_nodes(ranks, link.nodes_of(ranks));
  const Environment environment = environment_of(link, deadline);
  const auto spawn_near = [&](WorldKind kind) {
    World::spawn(ranks, body, {.kind = kind, .topology = topology, .environment = environment});
  };
  switch (link.way) {
    case Way::threads: return spawn_near(WorldKind::inproc);
    case Way::processes: return spawn_near(WorldKind::shm);
    case Way::islands: return spawn_near(WorldKind::islands);
    case Way::tcp:
    case Way::ucx: return spawn_far_processes(topology, environment, body);
  }
}

std::vector<CaseKey> cases_of(const Link& link) {
  std::vector<CaseKey> keys;
  for (const std::int32_t ranks : link.rank_counts)
    for (const Variant variant : {Variant::plain, Variant::odd, Variant::large, Variant::bounded, Variant::packed})
      for (const DType dtype : kDTypes)
        for (const Layout layout : kLayouts) {
          const bool is_padded = layout == Layout::padded;
          if (!offers(link, layout)) continue;
          // One dtype shows what happens to many bytes.
          if (variant == Variant::large && dtype != bf16) continue;
          if (variant == Variant::bounded && (is_padded || !offers(link, Feature::bounds))) continue;
          if (variant == Variant::packed && !is_padded) continue;
          const bool may_have_scales = !is_padded || offers(link, Feature::padded_scales);
          keys.push_back({.layout = layout,
                          .dtype = dtype,
                          .variant = variant,
                          .ranks = ranks,
                          .nodes = link.nodes_of(ranks),
                          .has_fp8_x = dtype == fp8_e4m3 && variant == Variant::odd && may_have_scales});
        }
  return keys;
}

bool offers(const Link& link, Layout layout) { return layout != Layout::padded || offers(link, Feature::padded); }

std::vector<std::string> not_offered(const Link& link, Layout layout) {
  std::vector<Feature> wanted;
  if (layout == Layout::padded)
    wanted = {Feature::padded, Feature::padded_gradients, Feature::packed_gradients, Feature::padded_scales};
  else if (link.kind() != EngineKind::host)
    wanted = {Feature::bounds};
  std::vector<std::string> names;
  for (const Feature feature : wanted) {
    if (offers(link, feature)) continue;
    names.emplace_back(support_of(feature).name);
    if (feature == Feature::padded) break;  // says it all
  }
  return names;
}

}  // namespace shunt::bench::selftest
