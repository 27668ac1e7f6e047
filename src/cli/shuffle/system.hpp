// One way to shuffle, as the benchmark drives it.
#pragma once

#include <cstdint>
#include <string>

#include "shunt/tensor.hpp"

namespace shunt::cli {

/// Every call is collective and blocking. Rows are expert-major unless the system says otherwise.
class System {
 public:
  virtual ~System() = default;

  [[nodiscard]] virtual std::string name() const = 0;

  /// All that depends on the routing alone.
  virtual void plan() = 0;
  /// This rank's rows; valid until the next call.
  virtual ConstTensor dispatch() = 0;
  /// Where the experts' outputs go; valid until the next plan() after which it is asked for again.
  virtual Tensor expert_out() = 0;
  /// Of what expert_out() holds; valid until the next call.
  virtual ConstTensor combine() = 0;

  /// Rows read plus rows written by one dispatch of this rank, given its tokens and the (token, expert) pairs it sends.
  [[nodiscard]] virtual std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t sent) const = 0;
  /// True where a token travels once per rank instead of once per expert.
  [[nodiscard]] virtual bool sends_once_per_rank() const { return false; }
};

}  // namespace shunt::cli
