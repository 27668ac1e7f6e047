// What decides about slots besides counts; the same on all ranks.
#pragma once

#include <cstdint>

namespace shunt::device {

struct SlotRules {
  std::int64_t capacity;   ///< rows that an expert accepts
  std::int64_t max_rows;   ///< rows that a rank can take in
  std::int32_t alignment;  ///< of experts' blocks, in rows

  [[nodiscard]] constexpr std::int64_t aligned(std::int32_t rows) const {
    const auto step = static_cast<std::uint32_t>(alignment);  // 64 bits would take the device five times as long
    return std::int64_t{(static_cast<std::uint32_t>(rows) + step - 1) / step} * alignment;
  }
};

}  // namespace shunt::device
