// A fault in one atomic word, so that no rank can die half-way through reporting it.
#pragma once

#include <cstdint>

#include "shunt/error.hpp"
#include "shunt/ids.hpp"

namespace shunt {

struct FaultWord {
  ErrorCode code;
  RankId culprit;
  RankId reporter;

  /// Never zero, which stands for "no fault".
  [[nodiscard]] std::uint64_t pack() const {
    return (std::uint64_t{1} << 63) | (static_cast<std::uint64_t>(code) << 48) |
           (static_cast<std::uint64_t>(culprit.value) << 24) | static_cast<std::uint64_t>(reporter.value);
  }
  static FaultWord unpack(std::uint64_t word) {
    return {static_cast<ErrorCode>((word >> 48) & 0xff), RankId(static_cast<std::int32_t>((word >> 24) & 0xff'ffff)),
            RankId(static_cast<std::int32_t>(word & 0xff'ffff))};
  }
};

}  // namespace shunt
