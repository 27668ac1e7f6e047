// Times within a graph, taken by the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace shunt::cli {

/// A stamp is a kernel of one thread, which has its own cost: measure the same work without.
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

}  // namespace shunt::cli
