#include "engine/place.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace shunt::test {
namespace {

// Before CUDA starts: many ranks of this process wait for each other on one device.
const bool has_connections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0;

std::string ask(const Place& place) {
  try {
    const bool is_nccl = place.network == DeviceNetwork::nccl;
    place.run(is_nccl ? 2 : 1, [&](World& world) { const Engine engine(world, place.options({.hidden = 1})); });
    return "";
  } catch (const Error& error) {
#ifdef SHUNT_TEST_CUDA
    if (std::string(error.what()).find("can't load libshunt_cuda") != std::string::npos) throw;
#endif
    const bool is_forked = std::string(error.what()).find("forked") != std::string::npos;
    const bool is_refused_by_nccl = place.network == DeviceNetwork::nccl && error.code() == ErrorCode::system;
    const bool has_too_few_sms = place.sms > 0 && error.code() == ErrorCode::invalid_argument;
    if (error.code() != ErrorCode::unsupported && !is_forked && !is_refused_by_nccl && !has_too_few_sms) throw;
    return error.what();
  }
}

}  // namespace

std::string Place::why_not() const {
  static std::map<std::string, std::string> known;
  if (!is_device) return "";
  if (world == WorldKind::shm) return ask(*this);  // until this process uses CUDA
  const auto [found, is_new] = known.try_emplace(name + std::to_string(sms));
  if (is_new) found->second = ask(*this);
  return found->second;
}

EngineKind Place::kind(const Topology& topology) const {
  if (!is_device) return EngineKind::host;
  return world == WorldKind::islands && topology.num_nodes() > 1 ? EngineKind::cluster : EngineKind::node;
}

Topology Place::topology(std::int32_t num_ranks) const {
  return world == WorldKind::islands && num_ranks > 1 ? Topology::virtual_nodes(num_ranks, 2)
                                                      : Topology::single_node(num_ranks);
}

EngineOptions Place::options(EngineOptions engine, const DeviceOptions& device) const {
  if (!is_device) return engine;
  engine.device = device;
  engine.device->network = network;
  if (sms > 0) {
    engine.device->sms = sms;
    engine.device->heap_bytes = std::max(device.heap_bytes, std::size_t{256} << 20);
  }
  if (!support_of(Feature::companions).of(EngineKind::node)) engine.companions = {};
  return engine;
}

SpawnOptions Place::spawn(const Topology& topology, std::chrono::milliseconds deadline) const {
  SpawnOptions options{.kind = world, .topology = topology};
  options.environment.deadline = deadline;  // so that the Error of a case that hangs names its seed
  return options;
}

void Place::run(std::int32_t num_ranks, const std::function<void(World&)>& body,
                std::chrono::milliseconds deadline) const {
  World::spawn(num_ranks, body, spawn(topology(num_ranks), deadline));
}

}  // namespace shunt::test
