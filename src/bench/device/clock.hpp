// Device times: of work on the ranks' streams, and within graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/timings.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// Times work of ranks that are threads of one process and share a device. A kernel on every stream blocks until all
/// ranks have launched their work, so that no host launch is timed.
class DeviceClock {
 public:
  /// Collective.
  DeviceClock(World& world, cudaStream_t stream);
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  /// Collective; `work` may contain barriers. Returns when the work is done.
  void time(Timings& timings, const std::string& name, const std::function<void()>& work);

 private:
  struct Shared;

  World& world_;
  cudaStream_t stream_;
  std::shared_ptr<Shared> shared_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::uint32_t round_ = 0;
};

/// Time stamps of the device within a graph. A stamp is a kernel of one thread, which takes time itself: also measure
/// the same work without stamps.
class Stamps {
 public:
  explicit Stamps(std::size_t count);

  /// Launches the next stamp on the stream; after the last one starts over.
  void put(cudaStream_t stream);
  /// The stamps, in nanoseconds of the device's clock. No stamp may be running.
  [[nodiscard]] std::vector<std::uint64_t> read(cudaStream_t stream) const;

 private:
  std::size_t count_;
  std::size_t next_ = 0;
  std::shared_ptr<std::byte> times_;
};

}  // namespace shunt::bench
