// A world of processes of one host that can be rebuilt.
#pragma once

#include "transport/reunion.hpp"
#include "transport/shm/join.hpp"

namespace shunt::shm {

/// As join(); whoever looks for a rank of the world finds it at its seat.
Joined join_and_keep_seat(const JoinOptions& options);

}  // namespace shunt::shm
