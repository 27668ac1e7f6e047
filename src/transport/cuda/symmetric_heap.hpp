// One heap of device memory per rank, which every rank of the node addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/free_ranges.hpp"

namespace shunt::device {

/// Collective: every rank's bytes, by rank.
using AllGather = std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte> mine)>;

/// Device memory that is freed when the last rank of this process that maps it has released it: freeing waits for the
/// device, where kernels of other ranks may wait for this one's.
using SharedMemory = std::shared_ptr<std::byte>;

class SymmetricHeap {
 public:
  /// A rank's memory, zeroed, for a heap of this size. Not collective, so that a rank without memory can tell the
  /// others before they make the heap. The companion ends with the memory. Throws Error(system) with what CUDA refuses.
  static SharedMemory allocate(std::size_t bytes, std::int32_t device, std::shared_ptr<const void> companion);

  /// Collective; every rank passes the same size, and its own memory, from allocate(). Ranks may be threads or
  /// processes and use the same device or others. Throws Error(system) or Error(unsupported) with what CUDA refuses.
  SymmetricHeap(std::size_t bytes, std::int32_t device, std::int32_t self, const SharedMemory& mine,
                const AllGather& all_gather);

  [[nodiscard]] std::int32_t device() const { return device_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::byte* base() const { return ranks_[static_cast<std::size_t>(self_)].get(); }
  /// Where a rank's heap lies for this rank.
  [[nodiscard]] std::byte* base_of(std::size_t rank) const { return ranks_[rank].get(); }
  /// Not 0 for any block.
  [[nodiscard]] std::uint64_t offset_of(const void* address) const;
  [[nodiscard]] bool contains(const void* address, std::size_t bytes) const;

  /// Not collective, and no CUDA call: streams may be captured meanwhile. The caller orders the uses of a block before
  /// and after its release by streams. Aligned to kAlignment. Throws Error(system) when there is no room.
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void release(const std::byte* block) noexcept;
  /// Withholds the block at this offset from reuse, even once released. Does nothing if there is none.
  void keep(std::uint64_t offset) noexcept;

  static constexpr std::size_t kAlignment = 256;

 private:
  std::size_t bytes_;
  std::int32_t device_;
  std::int32_t self_;
  std::vector<SharedMemory> ranks_;

  std::mutex mutex_;
  FreeRanges free_;
  std::map<std::uint64_t, std::size_t> live_;  // offset → bytes
};

}  // namespace shunt::device
