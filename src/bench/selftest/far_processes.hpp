// Several machines on one: processes in IPC namespaces of their own, which makes them far to each other, joined by a
// network over the loopback interface or, for UCX, this machine's own RDMA devices.
#pragma once

#include <functional>
#include <string>

#include "shunt/environment.hpp"
#include "shunt/topology.hpp"
#include "shunt/world.hpp"

namespace shunt::bench::selftest {

/// Empty where processes may do it. Tries it in a child.
std::string why_no_far_processes();

/// Runs body(world) on the topology's ranks, each a process, each node a machine of its own to the others;
/// `environment` says by what they are joined. Throws as World::spawn does.
void spawn_far_processes(const Topology& topology, const Environment& environment,
                         const std::function<void(World&)>& body);

}  // namespace shunt::bench::selftest
