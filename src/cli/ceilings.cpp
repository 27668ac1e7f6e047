#include "cli/ceilings.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/copy.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

constexpr std::size_t kRow = 4096;

}  // namespace

Ceilings::Ceilings()
    : bytes_(std::max<std::size_t>(64 << 20, 3 * Machine::detect().last_level_cache_bytes) / kRow * kRow),
      from_(bytes_, std::byte{1}),
      to_(bytes_, std::byte{2}) {}

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
