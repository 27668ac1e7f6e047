// How fast this machine moves memory, measured like the shuffle: all ranks at once, far beyond the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shunt::cli {

class Ceilings {
 public:
  explicit Ceilings(std::int32_t num_ranks);

  /// Of both buffers of one rank. All ranks' together are several times the last-level caches, and bounded.
  static std::size_t bytes_per_rank(std::int32_t num_ranks);

  // Each returns the bytes it read plus the bytes it wrote on this rank.
  std::size_t copy_with_memcpy();
  std::size_t copy_streaming();
  /// Writes from a source that stays in the cache: the limit of a dispatch with many copies per token.
  std::size_t write_streaming();
  /// Reads only: the limit of a combine with many copies per token.
  std::size_t read();

 private:
  std::size_t bytes_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  std::uint64_t sink_ = 0;  // keeps the reads from being optimised away
};

}  // namespace shunt::cli
