// Child processes of the self-test: a child that isolates crashes and hangs, and groups of processes that simulate
// several machines.
#pragma once

#include <functional>
#include <string>

#include "shunt/environment.hpp"
#include "shunt/topology.hpp"
#include "shunt/world.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::bench::selftest {

/// Sends one line to the parent, with line breaks replaced. May also be called in processes that the child forks.
using SendLine = std::function<void(const std::string& line)>;

/// Runs part(send_line) in a child process and calls on_line(line) here for every line, in order. Returns when the
/// child has ended: an empty string if `part` returned, otherwise the reason: the exception, the signal that ended the
/// child, or that the child was killed at `limit`. The child also dies with this process. Call it while this process
/// has one thread and has not used CUDA.
std::string run_in_child(const std::function<void(const SendLine&)>& part,
                         const std::function<void(const std::string&)>& on_line, Deadline limit);

/// Why spawn_far_processes() can't work here; empty if it can. Tries it in a child.
std::string why_no_far_processes();

/// Runs body(world) on the topology's ranks, each a process. Each node is in an IPC namespace of its own, so that nodes
/// can't share memory. `environment` selects the network between them: the loopback interface or, for UCX, this
/// machine's RDMA devices. Throws like World::spawn.
void spawn_far_processes(const Topology& topology, const Environment& environment,
                         const std::function<void(World&)>& body);

}  // namespace shunt::bench::selftest
