// What decides about slots besides counts; the same on all ranks.
#pragma once

#include <cstdint>

namespace shunt::device {

struct SlotRules {
  std::int64_t capacity;   ///< rows that an expert accepts
  std::int64_t max_rows;   ///< rows that a rank can take in
  std::int32_t alignment;  ///< of experts' blocks, in rows

  [[nodiscard]] constexpr std::int64_t aligned(std::int64_t rows) const {
    return (rows + alignment - 1) / alignment * alignment;
  }
};

}  // namespace shunt::device
