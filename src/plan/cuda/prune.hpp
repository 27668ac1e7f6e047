// Pruning on a device: the host's source with one thread per token, so the bits are the same.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/prune_token.hpp"

namespace shunt::device {

/// All pointers are device pointers. plan/prune.hpp checks sizes, and makes the tables of places and the report. A
/// token with a PruneFault passes unchanged; if it names invalid or repeated experts, the plan made from it reports
/// them. Scores of other experts may be anything; one that is not finite is never chosen.
struct Prune {
  PruneArrays arrays;
  std::int64_t num_tokens;
  PrunedToken* tokens;  ///< [tokens], input of the report
};

void launch(const Prune& prune, cudaStream_t stream);
void preload_prune();

}  // namespace shunt::device
