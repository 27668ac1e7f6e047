// Times taken on a device: of what ranks put on their streams, and within graphs.
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

/// For ranks that are threads of one process and share a device. Work is put on streams behind a gate that the device
/// watches; it opens when all ranks have put all of theirs there, so that no launch by the host is timed.
class DeviceClock {
 public:
  /// Collective.
  DeviceClock(World& world, cudaStream_t stream);
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  /// Collective; `work` may contain barriers. Waits for the end.
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

/// Times within a graph, taken by the device. A stamp is a kernel of one thread, which has its own cost: measure the
/// same work without.
class Stamps {
 public:
  explicit Stamps(std::size_t count);

  /// Puts the next one on the stream; after the last, the first comes again.
  void put(cudaStream_t stream);
  /// Nanoseconds of the device's clock; nothing of it may be under way.
  [[nodiscard]] std::vector<std::uint64_t> read(cudaStream_t stream) const;

 private:
  std::size_t count_;
  std::size_t next_ = 0;
  std::shared_ptr<std::byte> times_;
};

}  // namespace shunt::bench
