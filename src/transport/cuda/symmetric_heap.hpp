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

/// Device memory that is freed when the last rank that maps it in this process has let go of it: freeing waits for the
/// device, where others may wait for whoever frees.
using SharedMemory = std::shared_ptr<std::byte>;

class SymmetricHeap {
 public:
  /// Collective; every rank brings the same size. Ranks may be threads or processes and use the same device or others.
  /// Memory is zero at first. The companion ends with this rank's memory. Throws Error(system) or Error(unsupported)
  /// with what CUDA refuses.
  SymmetricHeap(std::size_t bytes, std::int32_t device, std::int32_t self, const AllGather& all_gather,
                std::shared_ptr<const void> companion);

  [[nodiscard]] std::int32_t device() const { return device_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::byte* base() const { return ranks_[static_cast<std::size_t>(self_)].get(); }
  /// Where a rank's heap lies for this rank.
  [[nodiscard]] std::byte* base_of(std::size_t rank) const { return ranks_[rank].get(); }
  /// Not 0 for any block.
  [[nodiscard]] std::uint64_t offset_of(const void* address) const;
  [[nodiscard]] bool contains(const void* address, std::size_t bytes) const;

  /// Not collective, and no CUDA call: streams may be captured meanwhile. Whoever frees a block and takes it again
  /// orders the two uses by streams. Aligned to kAlignment. Throws Error(system) when there is no room.
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void release(const std::byte* block) noexcept;
  /// The block at this offset is handed out to nobody else, whoever releases it. Nothing happens if there is none.
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
