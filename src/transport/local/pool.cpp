#include "transport/local/pool.hpp"

#include <algorithm>
#include <functional>

#include "core/fail.hpp"

namespace shunt {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kNone = ~std::uint64_t{0};

std::size_t round_to_page(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

}  // namespace

Pool::Pool(Segment& segment, std::size_t control_bytes)
    : segment_(segment), control_bytes_(round_to_page(control_bytes)) {
  segment_.commit(0, control_bytes_);
  free_.emplace(control_bytes_, FreeRange{segment_.bytes() - control_bytes_, false});
}

std::uint64_t Pool::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > segment_.bytes())
    fail(ErrorCode::system, "a block of {} bytes does not fit a segment of {}", bytes, segment_.bytes());
  const std::size_t rounded = round_to_page(bytes);
  std::uint64_t offset = take_warm(rounded);
  if (offset == kNone) offset = take_cold(rounded);
  live_.emplace(offset, rounded);
  live_bytes_ += rounded;
  note_live_bytes();
  return offset;
}

template <class Better>
Pool::FreeRanges::iterator Pool::find(bool warm, std::size_t min_bytes, Better is_better) {
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range)
    if (range->second.warm == warm && range->second.bytes >= min_bytes &&
        (best == free_.end() || is_better(range->second.bytes, best->second.bytes)))
      best = range;
  return best;
}

// The smallest warm range that fits, so that large ones stay whole for large blocks.
std::uint64_t Pool::take_warm(std::size_t bytes) {
  const auto best = find(true, bytes, std::less());
  if (best == free_.end()) return kNone;
  warm_bytes_ -= bytes;
  return take(best, bytes);
}

// Fresh pages, from the first cold range that fits. Warm ranges too small for this block are given back where both
// would exceed the bound.
std::uint64_t Pool::take_cold(std::size_t bytes) {
  cool_until(most_warm_bytes(live_bytes_ + bytes));
  const auto first = find(false, bytes, [](std::size_t, std::size_t) { return false; });
  if (first == free_.end())
    fail(ErrorCode::system, "no room for a block of {} bytes: {} bytes are live in a segment of {}", bytes, live_bytes_,
         segment_.bytes());
  segment_.commit(first->first, bytes);
  return take(first, bytes);
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

std::uint64_t Pool::take(FreeRanges::iterator range, std::size_t bytes) {
  const std::uint64_t offset = range->first;
  const FreeRange rest{range->second.bytes - bytes, range->second.warm};
  free_.erase(range);
  if (rest.bytes > 0) free_.emplace(offset + bytes, rest);
  return offset;
}

void Pool::release(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto block = live_.find(offset);
  SHUNT_CHECK(block != live_.end());
  live_bytes_ -= block->second;
  warm_bytes_ += block->second;
  insert_free(offset, {block->second, true});
  live_.erase(block);
  note_live_bytes();
}

void Pool::insert_free(std::uint64_t offset, FreeRange range) {
  auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second.warm == range.warm && before->first + before->second.bytes == offset) {
      offset = before->first;
      range.bytes += before->second.bytes;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->second.warm == range.warm && offset + range.bytes == next->first) {
    range.bytes += next->second.bytes;
    free_.erase(next);
  }
  free_.emplace(offset, range);
}

// Largest first: fewest system calls, and small blocks are the ones reused most.
void Pool::cool_until(std::size_t most_warm) {
  while (warm_bytes_ > most_warm) {
    const auto largest = find(true, 0, std::greater());
    SHUNT_CHECK(largest != free_.end());
    const std::uint64_t offset = largest->first;
    const std::size_t bytes = largest->second.bytes;
    if (!segment_.decommit(offset, bytes)) return;  // then they stay warm
    free_.erase(largest);
    warm_bytes_ -= bytes;
    insert_free(offset, {bytes, false});
  }
}

bool Pool::trim() {
  const std::lock_guard lock(mutex_);
  peak_ = previous_peak_ = live_bytes_;
  const std::size_t warm_before = warm_bytes_;
  cool_until(most_warm_bytes(live_bytes_));
  return warm_bytes_ < warm_before;
}

std::size_t Pool::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

std::size_t Pool::committed_bytes() const {
  const std::lock_guard lock(mutex_);
  return control_bytes_ + live_bytes_ + warm_bytes_;
}

}  // namespace shunt
