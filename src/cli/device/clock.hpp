// Times what ranks put on their streams, from the moment when all may start to the end of the last.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "cli/timings.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

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

}  // namespace shunt::cli
