#include "cli/ceilings.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/copy.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

constexpr std::size_t kRow = 4096;

/// A few ranks take three times a cache each; many ranks share twelve times all caches.
std::size_t buffer_bytes(std::int32_t num_ranks) {
  const Machine machine = Machine::detect();
  const std::size_t most = std::max<std::size_t>(64 << 20, 3 * machine.last_level_cache_bytes);
  const std::size_t share =
      4 * most * static_cast<std::size_t>(machine.last_level_caches) / static_cast<std::size_t>(num_ranks);
  return std::max(std::min(most, share) / kRow, std::size_t{1}) * kRow;
}

}  // namespace

Ceilings::Ceilings(std::int32_t num_ranks)
    : bytes_(buffer_bytes(num_ranks)), from_(bytes_, std::byte{1}), to_(bytes_, std::byte{2}) {}

std::size_t Ceilings::bytes_per_rank(std::int32_t num_ranks) { return 2 * buffer_bytes(num_ranks); }

std::size_t Ceilings::copy_with_memcpy() {
  std::memcpy(to_.data(), from_.data(), bytes_);
  return 2 * bytes_;
}

std::size_t Ceilings::copy_streaming() {
  std::byte* target = to_.data();
  copy_row(from_.data(), bytes_, std::span(&target, 1), Store::streaming);
  flush_streaming();
  return 2 * bytes_;
}

std::size_t Ceilings::write_streaming() {
  for (std::size_t offset = 0; offset < bytes_; offset += kRow) {
    std::byte* target = to_.data() + offset;
    copy_row(from_.data(), kRow, std::span(&target, 1), Store::streaming);
  }
  flush_streaming();
  return bytes_;
}

std::size_t Ceilings::read() {
  // Several accumulators, so that the loads and not the additions are the limit.
  std::uint64_t sums[8] = {};
  std::uint64_t words[8];
  for (std::size_t offset = 0; offset < bytes_; offset += sizeof(words)) {
    std::memcpy(words, from_.data() + offset, sizeof(words));
    for (std::size_t i = 0; i < 8; ++i) sums[i] += words[i];
  }
  for (const std::uint64_t sum : sums) sink_ += sum;
  return bytes_;
}

}  // namespace shunt::cli
