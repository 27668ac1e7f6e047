// Pruning on a device: the same source as on the host, a thread per token, so the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/prune_token.hpp"

namespace shunt::device {

/// All pointers are of the device; plan/prune.hpp checks sizes and makes the tables of places and the report. A token
/// that makes no sense (see PruneFault) passes unchanged: if it names experts that don't exist or one twice, the plan
/// that is made of it says so. Scores of other experts may be anything; one that is not finite is never chosen.
struct Prune {
  PruneArrays arrays;
  std::int64_t num_tokens;
  PrunedToken* tokens;  ///< [tokens], for a report
};

void launch(const Prune& prune, cudaStream_t stream);
void preload_prune();

}  // namespace shunt::device
