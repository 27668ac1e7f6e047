// Where ranks and their rows are. One test source runs everywhere, by these options alone.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <string>

#include "engine/supported.hpp"
#include "shunt/engine.hpp"

namespace shunt::test {

/// Little memory, as many engines are made.
inline DeviceOptions small_device(std::int64_t max_tokens = 64, std::size_t heap_bytes = 64 << 20) {
  return {.heap_bytes = heap_bytes, .max_tokens = max_tokens, .batch_bytes = 16 << 10, .num_batches = 4};
}

struct Place {
  const char* name;
  WorldKind world = WorldKind::inproc;
  bool is_device = false;
  DeviceNetwork network = DeviceNetwork::world;
  std::int32_t sms = 0;  ///< as in DeviceOptions

  /// Empty if engines can be made there, else why not.
  [[nodiscard]] std::string why_not() const;
  [[nodiscard]] EngineKind kind(const Topology& topology) const;
  /// As many ranks, on nodes that share no memory where the place is between nodes.
  [[nodiscard]] Topology topology(std::int32_t num_ranks) const;
  /// Without what the kind of engine can't do.
  [[nodiscard]] EngineOptions options(EngineOptions engine, const DeviceOptions& device = small_device()) const;
  [[nodiscard]] SpawnOptions spawn(const Topology& topology,
                                   std::chrono::milliseconds deadline = std::chrono::seconds(20)) const;
  void run(std::int32_t num_ranks, const std::function<void(World&)>& body,
           std::chrono::milliseconds deadline = std::chrono::seconds(20)) const;
};
inline void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }

inline constexpr Place kHostThreads{"HostThreads"};
inline constexpr Place kHostProcesses{"HostProcesses", WorldKind::shm};
inline constexpr Place kHostIslands{"HostIslands", WorldKind::islands};
inline constexpr Place kDeviceThreads{"DeviceThreads", WorldKind::inproc, true};
/// Their tests run alone in a process, as ctest runs them: where CUDA was used, forked ranks can't use it.
inline constexpr Place kDeviceProcesses{"DeviceProcesses", WorldKind::shm, true};
inline constexpr Place kDeviceIslands{"DeviceIslands", WorldKind::islands, true};
/// Where NCCL accepts ranks that share a device, which is on emulated ones.
inline constexpr Place kDeviceNccl{"DeviceNccl", WorldKind::islands, true, DeviceNetwork::nccl};
inline constexpr Place kDeviceFewSms{"DeviceFewSms", WorldKind::inproc, true, DeviceNetwork::world, 3};

/// A test that is the same everywhere.
class AtPlace : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (const std::string why = place().why_not(); !why.empty()) GTEST_SKIP() << why;
  }
  [[nodiscard]] const Place& place() const { return GetParam(); }
  [[nodiscard]] EngineKind kind(std::int32_t num_ranks) const { return place().kind(place().topology(num_ranks)); }
};

inline const auto kNameOfPlace = [](const auto& parameter) { return std::string(parameter.param.name); };

/// Where ranks are threads, which can report to the test.
inline const auto kThreadPlaces =
    ::testing::Values(kHostThreads, kHostIslands, kDeviceThreads, kDeviceIslands, kDeviceNccl);

}  // namespace shunt::test

/// First in every test that needs a place.
#define SHUNT_NEEDS(place) \
  if (const std::string why = (place).why_not(); !why.empty()) GTEST_SKIP() << why
