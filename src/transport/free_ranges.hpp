// Unused parts of an address range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace shunt {

/// Neighbours are merged.
class FreeRanges {
 public:
  [[nodiscard]] std::size_t total_bytes() const { return total_bytes_; }
  /// Bytes of the largest range; there must be one.
  [[nodiscard]] std::size_t largest() const {
    const auto is_smaller = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::ranges::max_element(ranges_, is_smaller)->second;
  }

  /// The offset of so many bytes, which are used from now on; none where no range has them. From the smallest that has,
  /// so that large ranges stay whole for large blocks.
  std::optional<std::uint64_t> take(std::size_t bytes) {
    auto best = ranges_.end();
    for (auto range = ranges_.begin(); range != ranges_.end(); ++range)
      if (range->second >= bytes && (best == ranges_.end() || range->second < best->second)) best = range;
    if (best == ranges_.end()) return std::nullopt;
    const auto [offset, size] = *best;
    ranges_.erase(best);
    if (size > bytes) ranges_.emplace(offset + bytes, size - bytes);
    total_bytes_ -= bytes;
    return offset;
  }

  void insert(std::uint64_t offset, std::size_t bytes) {
    total_bytes_ += bytes;
    const auto next = ranges_.lower_bound(offset);
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        ranges_.erase(before);
      }
    }
    if (next != ranges_.end() && offset + bytes == next->first) {
      bytes += next->second;
      ranges_.erase(next);
    }
    ranges_.emplace(offset, bytes);
  }

 private:
  std::map<std::uint64_t, std::size_t> ranges_;  // offset → bytes
  std::size_t total_bytes_ = 0;
};

}  // namespace shunt
