#include "bench/selftest/link.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "bench/selftest/processes.hpp"
#include "core/comma_list.hpp"
#include "core/fail.hpp"
#include "transport/far/make_carrier.hpp"

namespace shunt::bench::selftest {
namespace {

constexpr std::array kLayouts = {Layout::expert_major, Layout::token_unique, Layout::padded};
constexpr std::array kDTypes = {f32, bf16, f16, fp8_e4m3};

bool offers(const Link& link, Feature feature) { return support_of(feature).of(link.engine_kind()); }

Environment environment_of(const Link& link, std::chrono::milliseconds deadline) {
  Environment environment = Environment::read();
  environment.deadline = environment.join = deadline;
  environment.topology_file.clear();
  environment.virtual_nodes = 1;
  if (link.type != LinkType::tcp && link.type != LinkType::ucx) return environment;
  environment.network.kind = to_string(link.type);
  environment.network.interface = "lo";
  environment.network.port_range.clear();
  // With an empty list UCX finds the RDMA devices itself.
  const bool has_rdma = link.type == LinkType::ucx && !far::rdma_devices("").empty();
  environment.network.devices = has_rdma ? "" : "lo";
  return environment;
}

std::vector<std::int32_t> requested_devices(const std::string& words, const BusFacts& bus) {
  const auto count = static_cast<std::int32_t>(bus.gpus.size());
  if (words == "none") return {};
  if (words == "first") return count > 0 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{};
  std::vector<std::int32_t> chosen;
  if (words == "all") {
    chosen.resize(bus.gpus.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  for (const std::string& item : items_of(words)) {
    const auto index = number_in(item);
    if (!index || std::to_string(*index) != item)
      fail(ErrorCode::invalid_argument, "--devices {}: expected none, first, all, or indices such as 0,2", words);
    if (*index < 0 || *index >= count)
      fail(ErrorCode::invalid_argument, "--devices {}: there is no GPU {}, this machine has {}{}{}", words, *index,
           count, bus.why_no_gpus.empty() ? "" : ": ", bus.why_no_gpus);
    if (std::ranges::find(chosen, *index) == chosen.end()) chosen.push_back(*index);
  }
  if (chosen.empty())
    fail(ErrorCode::invalid_argument, "--devices '{}': expected none, first, all, or indices such as 0,2", words);
  return chosen;
}

bool has_several_processes(LinkType type) {
  return type == LinkType::processes || type == LinkType::tcp || type == LinkType::ucx;
}

/// Why this machine lacks the link; empty if it has it.
std::string why_not(LinkType type, const Obstacles& obstacles) {
  if (type == LinkType::tcp || type == LinkType::ucx)
    if (!obstacles.far_processes.empty()) return obstacles.far_processes;
  return type == LinkType::ucx ? obstacles.ucx : "";
}

std::string why_not_on(const std::vector<std::int32_t>& devices, LinkType type, std::int32_t most_ranks,
                       const BusFacts& bus) {
  const auto gpu = [&](std::int32_t index) -> const DeviceFacts& {
    return bus.gpus[static_cast<std::size_t>(index)].facts;
  };
  const bool is_shared = most_ranks > static_cast<std::int32_t>(devices.size());
  for (const std::int32_t device : devices)
    if (is_shared && has_several_processes(type) && gpu(device).compute_mode == "exclusive_process")
      return fmt::format("GPU {} is in compute mode exclusive_process, in which processes can't share it", device);
  if (type != LinkType::threads && type != LinkType::processes) return "";
  for (const std::int32_t a : devices)
    for (const std::int32_t b : devices)
      if (a != b && std::ranges::find(gpu(a).peers, b) == gpu(a).peers.end())
        return fmt::format("GPU {} can't reach the memory of GPU {}", a, b);
  return "";
}

Verdict link_verdict(const std::string& link, Status status, const std::string& why) {
  return {.link = link, .status = status, .why = why};
}

}  // namespace

std::string_view to_string(LinkType type) {
  switch (type) {
    case LinkType::threads: return "threads";
    case LinkType::processes: return "processes";
    case LinkType::islands: return "islands";
    case LinkType::tcp: return "tcp";
    case LinkType::ucx: return "ucx";
  }
  return "unknown";
}

std::string_view explain(LinkType type) {
  switch (type) {
    case LinkType::threads: return "ranks are threads of one process";
    case LinkType::processes: return "ranks are processes that map each other's memory";
    case LinkType::islands: return "ranks are threads, and nodes share no memory";
    case LinkType::tcp: return "ranks are processes, and nodes are joined by TCP over the loopback interface";
    case LinkType::ucx: return "the same by UCX, over RDMA devices if there are any";
  }
  return "";
}

std::string Link::name() const {
  if (devices.empty()) return std::string(to_string(type));
  if (devices.size() == 1) return fmt::format("gpu {}, {}", devices[0], to_string(type));
  const auto is_gap = [](std::int32_t a, std::int32_t b) { return b != a + 1; };
  if (std::ranges::adjacent_find(devices, is_gap) == devices.end())
    return fmt::format("gpus {}-{}, {}", devices.front(), devices.back(), to_string(type));
  return fmt::format("gpus {}, {}", fmt::join(devices, ","), to_string(type));
}

EngineKind Link::engine_kind() const {
  return devices.empty() ? EngineKind::host : is_far() ? EngineKind::cluster : EngineKind::node;
}

Place Link::place_of(RankId rank) const {
  if (devices.empty()) return {.kind = engine_kind()};
  return {.kind = engine_kind(), .device = devices[rank.index() % devices.size()]};
}

void spawn(const Link& link, std::int32_t ranks, std::chrono::milliseconds deadline,
           const std::function<void(World&)>& body) {
  const Topology topology = Topology::virtual_nodes(ranks, link.nodes_of(ranks));
  const Environment environment = environment_of(link, deadline);
  const auto spawn_near = [&](WorldKind kind) {
    World::spawn(ranks, body, {.kind = kind, .topology = topology, .environment = environment});
  };
  switch (link.type) {
    case LinkType::threads: return spawn_near(WorldKind::inproc);
    case LinkType::processes: return spawn_near(WorldKind::shm);
    case LinkType::islands: return spawn_near(WorldKind::islands);
    case LinkType::tcp:
    case LinkType::ucx: return spawn_far_processes(topology, environment, body);
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
          // Large rows are checked with one dtype only.
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
  else if (link.engine_kind() != EngineKind::host)
    wanted = {Feature::bounds};
  std::vector<std::string> names;
  for (const Feature feature : wanted) {
    if (offers(link, feature)) continue;
    names.emplace_back(support_of(feature).name);
    if (feature == Feature::padded) break;  // implies the others
  }
  return names;
}

std::string_view to_string(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::failed: return "failed";
    case Status::incomplete: return "incomplete";
    case Status::not_offered: return "not offered";
    case Status::skipped: return "skipped";
  }
  return "unknown";
}

bool is_fine(const std::vector<Verdict>& verdicts) {
  return std::ranges::none_of(verdicts, [](const Verdict& verdict) {
    return verdict.status == Status::failed || verdict.status == Status::incomplete;
  });
}

LinkChoice choose_links(const LinkRequest& request, const BusFacts& bus, const Obstacles& obstacles) {
  const std::vector<std::int32_t> devices = requested_devices(request.devices, bus);
  LinkChoice choice;
  std::vector<LinkType> types;
  for (const LinkType type : request.types) {
    Link link{.type = type, .rank_counts = request.rank_counts};
    if (const std::string why = why_not(type, obstacles); !why.empty()) {
      choice.verdicts.push_back(link_verdict(link.name(), Status::skipped, why));
      continue;
    }
    types.push_back(type);
    choice.links.push_back(std::move(link));
  }
  const auto add = [&](const std::vector<std::int32_t>& chosen, const std::vector<std::int32_t>& rank_counts) {
    for (const LinkType type : types) {
      Link link{.type = type, .devices = chosen, .rank_counts = rank_counts};
      const std::string why = why_not_on(chosen, type, std::ranges::max(rank_counts), bus);
      if (why.empty())
        choice.links.push_back(std::move(link));
      else
        choice.verdicts.push_back(link_verdict(link.name(), Status::skipped, why));
    }
  };
  for (const std::int32_t device : devices) add({device}, request.rank_counts);
  if (devices.size() > 1) add(devices, {static_cast<std::int32_t>(devices.size())});

  if (request.devices == "none" || !devices.empty()) return choice;
  const std::string why = bus.why_no_gpus.empty() ? "CUDA finds none" : bus.why_no_gpus;
  if (bus.has_gpu())
    choice.verdicts.push_back(
        link_verdict("gpus", Status::failed, fmt::format("{} here, but can't be used: {}", bus.gpu_files, why)));
  else
    choice.verdicts.push_back(link_verdict("gpus", Status::skipped, fmt::format("no GPU was found: {}", why)));
  return choice;
}

}  // namespace shunt::bench::selftest
