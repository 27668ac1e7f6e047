// How an operation's traffic with far ranks travels.
#pragma once

#include "engine/cuda/cluster/lane.hpp"
#include "engine/operation.hpp"

namespace shunt::device {

class FarRoute {
 public:
  virtual ~FarRoute() = default;

  /// Launches and sends what can be; says what became of it, but never that it is finished.
  virtual Work pump(Lane& lane) = 0;
  /// All that comes has been unpacked, or will be by what is launched.
  virtual bool is_all_launched() = 0;
  /// Called once all that was launched is done, until it returns true: no peer is needed any more.
  virtual bool finish() = 0;
};

}  // namespace shunt::device
