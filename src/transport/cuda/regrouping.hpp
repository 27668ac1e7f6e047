// Ranks agree on one barrier count again after a fault, with some of them left out.
#pragma once

#include <cuda_runtime_api.h>

#include "transport/cuda/control.hpp"

namespace shunt::device {

/// After expired waits ranks may have arrived at different numbers of barriers, so they use a second control block.
struct Regrouping {
  Control control;      ///< of all other barriers; nothing else that uses it may be on a stream
  Control elsewhere;    ///< of the tries to regroup; the same ranks have no block in either
  std::uint64_t round;  ///< from 1: regroupings that this rank has completed, and this one
  std::uint64_t tag;
  unsigned long long* furthest;  ///< device: afterwards the largest round of any rank
};

/// Afterwards all ranks that have a block have the same barrier count, beyond all earlier ones, and the fault is
/// cleared. If a rank does not arrive within the deadline, or only with another tag, control is faulty and the round
/// may be tried again, with this tag or another. If peers have completed a round that this rank gave up too early,
/// `furthest` names the one to try.
void launch(const Regrouping& regrouping, cudaStream_t stream);
void preload_regrouping();

}  // namespace shunt::device
