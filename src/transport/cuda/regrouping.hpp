// Ranks agree where they stand, with some of them left out.
#pragma once

#include <cuda_runtime_api.h>

#include "transport/cuda/control.hpp"

namespace shunt::device {

/// Ranks that gave up waiting may have come to different numbers of meetings, so they meet somewhere else.
struct Regrouping {
  Control control;      ///< where they meet otherwise; nothing else of it may be on a stream
  Control elsewhere;    ///< its meetings are tries to regroup; the same ranks have no block in either
  std::uint64_t round;  ///< from 1: regroupings that this rank has completed, and this one
  std::uint64_t tag;
  unsigned long long* furthest;  ///< device: afterwards the largest round of any rank
};

/// Afterwards all ranks that have a block count the same meetings, none of which anybody has come to, and the fault is
/// forgotten. If a rank does not come within the deadline, or only with another tag, control is faulty and the round
/// may be tried again, with this tag or another. Others may have completed a round that this rank gave up too early:
/// then theirs is the one to try.
void launch(const Regrouping& regrouping, cudaStream_t stream);
void preload_regrouping();

}  // namespace shunt::device
