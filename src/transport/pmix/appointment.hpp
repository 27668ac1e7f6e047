// Where and by which token ranks of several hosts meet, if the environment does not say it.
#pragma once

#include "shunt/environment.hpp"

namespace shunt::pmix {

/// environment.network with nothing left open: what no variable says is chosen by rank 0, its token at random, and
/// published through the launcher. Collective unless all is said; every world of a job gets the same. Throws
/// Error(invalid_argument) that says which variables to set where the launcher or this build has no PMIx,
/// Error(deadline) where rank 0 publishes nothing, Error(system).
Environment::Network agree_where_to_meet(const Environment& environment);

}  // namespace shunt::pmix
