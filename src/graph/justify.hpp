// Makes a schedule shorter by shifting everything late, then early again.
#pragma once

#include "graph/list_schedule.hpp"

namespace shunt::graph {

/// Double justification (Valls, Ballestín and Quintanilla, 2005): the step is scheduled from its end backwards, what
/// ends last first, and then forwards in the order that this gave. What only fills gaps thereby learns where the gaps
/// are. Mostly shorter, but not by construction: the caller compares. Communication that `waits`, by task, starts only
/// while no other is in flight.
ListSchedule justified(const Program& program, const Cluster& cluster, const std::vector<bool>& waits,
                       const ListSchedule& schedule);

}  // namespace shunt::graph
