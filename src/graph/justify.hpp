// Shortens a schedule by scheduling everything as late as possible, then as early as possible.
#pragma once

#include "graph/list_schedule.hpp"

namespace shunt::graph {

/// Double justification (Valls, Ballestín and Quintanilla, 2005): the step is scheduled backwards from its end, with
/// tasks that end last first, and then forwards in the resulting order, which moves fillers to where the gaps are.
/// Usually shorter, but not always: the caller compares. Communication with `waits`, by task, starts only while no
/// other is in flight.
ListSchedule justified(const Program& program, const Cluster& cluster, const std::vector<bool>& waits,
                       const ListSchedule& schedule);

}  // namespace shunt::graph
