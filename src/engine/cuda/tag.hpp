// What ranks compare when they meet.
#pragma once

#include <cstdint>
#include <string_view>

namespace shunt::device {

enum class OpKind : std::uint8_t { plan = 1, dispatch, combine, dispatch_backward, combine_backward };

constexpr std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::plan: return "plan";
    case OpKind::dispatch: return "dispatch";
    case OpKind::combine: return "combine";
    case OpKind::dispatch_backward: return "dispatch_backward";
    case OpKind::combine_backward: return "combine_backward";
  }
  return "an operation that does not exist";
}

/// Ranks meet at the beginning of an operation, when they show each other memory, and at its end, when it is done with.
enum class Phase : std::uint8_t { begin, end };

struct Tag {
  OpKind kind;
  Phase phase;
  std::uint64_t plan_hash;

  [[nodiscard]] constexpr std::uint64_t packed() const {
    return (plan_hash & kHashMask) | std::uint64_t{static_cast<std::uint8_t>(phase)} << 48 |
           std::uint64_t{static_cast<std::uint8_t>(kind)} << 56;
  }
  static constexpr Tag unpack(std::uint64_t packed) {
    return {static_cast<OpKind>(packed >> 56), static_cast<Phase>(packed >> 48 & 0xff), packed & kHashMask};
  }

 private:
  static constexpr std::uint64_t kHashMask = (std::uint64_t{1} << 48) - 1;
};

}  // namespace shunt::device
