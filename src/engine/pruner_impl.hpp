// What a device does of pruning.
#pragma once

#include "shunt/pruning.hpp"

namespace shunt {

struct Pruner::Impl {
  virtual ~Impl() = default;
  /// The arguments have been checked.
  virtual void prune(const Routing& routing, const float* scores, std::int32_t* experts, float* weights,
                     Stream stream) = 0;
  [[nodiscard]] virtual PruneReport report(Stream stream) const = 0;

  Memory memory;
  std::int64_t max_tokens = 0;
};

}  // namespace shunt
