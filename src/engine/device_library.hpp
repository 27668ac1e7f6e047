// The interface of libshunt_cuda.so, which is loaded when something on a device is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.hpp"
#include "engine/engine_impl.hpp"
#include "shunt/pruning.hpp"

namespace shunt {

struct Pruner::Impl {
  virtual ~Impl() = default;
  /// Arguments were checked.
  virtual void prune(const Routing& routing, const float* scores, std::int32_t* experts, float* weights,
                     Stream stream) = 0;
  [[nodiscard]] virtual PruneReport report(Stream stream) const = 0;

  Memory memory;
  std::int64_t max_tokens = 0;
};

/// A CUDA device of this machine.
struct DeviceFacts {
  std::string name = {};
  std::string pci_address = {};  ///< as in /sys/bus/pci/devices: "0000:1b:00.0"
  std::size_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::string compute_mode = {};  ///< default, exclusive_process or prohibited
  bool is_mig = false;            ///< a part of a GPU
  std::vector<int> peers = {};    ///< devices whose memory it can address
  // In CUDA's numbering: 13000 is 13.0.
  int driver_version = 0;  ///< newest CUDA that the driver supports
  int runtime_version = 0;
};

struct DeviceLibrary {
  std::shared_ptr<Engine::Impl> (*make_engine)(World& world, const EngineOptions& options);
  std::shared_ptr<Pruner::Impl> (*make_pruner)(const ExpertMap& map, const Topology& topology,
                                               const PruneOptions& options, std::int64_t max_tokens, Memory memory);
  /// The process's devices, by index. Throws Error(unsupported) without a driver or a device.
  std::vector<DeviceFacts> (*describe_devices)();
};

/// Loads the library. Throws Error(unsupported) with instructions if that fails.
inline const DeviceLibrary& require_device_library() { return require_backend<DeviceLibrary>("cuda"); }

}  // namespace shunt
