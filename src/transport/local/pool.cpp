#include "transport/local/pool.hpp"

#include <algorithm>

#include "core/fail.hpp"

namespace shunt {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t round_to_page(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

}  // namespace

Pool::Pool(Segment& segment, std::size_t control_bytes)
    : segment_(segment), control_bytes_(round_to_page(control_bytes)) {
  segment_.commit(0, control_bytes_);
  cold_.insert(control_bytes_, segment_.bytes() - control_bytes_);
}

std::uint64_t Pool::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > segment_.bytes())
    fail(ErrorCode::system, "a block of {} bytes does not fit a segment of {}", bytes, segment_.bytes());
  const std::size_t rounded = round_to_page(bytes);
  const auto warm = warm_.take(rounded);
  const std::uint64_t offset = warm ? *warm : take_cold(rounded);
  live_.emplace(offset, rounded);
  live_bytes_ += rounded;
  note_live_bytes();
  return offset;
}

// Warm ranges too small for this block are given back where both would exceed the bound.
std::uint64_t Pool::take_cold(std::size_t bytes) {
  cool_until(most_warm_bytes(live_bytes_ + bytes));
  const auto offset = cold_.take(bytes);
  if (!offset)
    fail(ErrorCode::system, "no room for a block of {} bytes: {} bytes are live in a segment of {}", bytes, live_bytes_,
         segment_.bytes());
  try {
    segment_.commit(*offset, bytes);
  } catch (...) {
    cold_.insert(*offset, bytes);
    throw;
  }
  return *offset;
}

// Keeps the peaks, and the bound when an old peak is forgotten.
void Pool::note_live_bytes() {
  const auto now = std::chrono::steady_clock::now();
  if (now - second_begin_ >= std::chrono::seconds(1)) {
    const bool skipped_one = now - second_begin_ >= std::chrono::seconds(2);
    previous_peak_ = skipped_one ? 0 : peak_;
    peak_ = 0;
    second_begin_ = now;
  }
  peak_ = std::max(peak_, live_bytes_);
  cool_until(most_warm_bytes(live_bytes_));
}

std::size_t Pool::most_warm_bytes(std::size_t live_bytes) const {
  const std::size_t peak = std::max({peak_, previous_peak_, live_bytes});
  return peak - live_bytes + kReserveBytes - std::min(kReserveBytes, control_bytes_);
}

void Pool::release(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto block = live_.find(offset);
  SHUNT_CHECK(block != live_.end());
  live_bytes_ -= block->second;
  warm_.insert(offset, block->second);
  live_.erase(block);
  note_live_bytes();
}

// Largest first: fewest system calls, and small blocks are the ones reused most.
void Pool::cool_until(std::size_t most_warm) {
  while (warm_.total_bytes() > most_warm) {
    const std::size_t bytes = warm_.largest();
    const std::uint64_t offset = *warm_.take(bytes);
    const bool is_cold = segment_.decommit(offset, bytes);
    (is_cold ? cold_ : warm_).insert(offset, bytes);
    if (!is_cold) return;
  }
}

bool Pool::trim() {
  const std::lock_guard lock(mutex_);
  peak_ = previous_peak_ = live_bytes_;
  const std::size_t warm_before = warm_.total_bytes();
  cool_until(most_warm_bytes(live_bytes_));
  return warm_.total_bytes() < warm_before;
}

std::size_t Pool::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

std::size_t Pool::committed_bytes() const {
  const std::lock_guard lock(mutex_);
  return control_bytes_ + live_bytes_ + warm_.total_bytes();
}

}  // namespace shunt
