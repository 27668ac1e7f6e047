// Pruning as docs/concepts/pruning.md words it, slow and obvious.
#pragma once

#include "support/prune_case.hpp"

namespace shunt::test {

PrunedRouting reference_prune(const PruneCase& made);

}  // namespace shunt::test
