// Runs a part of the self-test in a process of its own, so that a crash, a hang or a broken device ends there.
#pragma once

#include <functional>
#include <string>

#include "transport/wait_ready.hpp"

namespace shunt::bench::selftest {

/// Sends one line to the process that waits; without line breaks. May be called in processes that the part forks.
using Say = std::function<void(const std::string& line)>;

/// Runs part(say) in a child and hear(line) here for every line, as they come. Returns when the child has ended: empty
/// if the part returned, else why it did not: what it threw, the signal that ended it, or that `limit` came first and
/// it was killed. The child dies with this process. Call it while this process has one thread and has not used CUDA.
std::string run_apart(const std::function<void(const Say&)>& part, const std::function<void(const std::string&)>& hear,
                      Deadline limit);

}  // namespace shunt::bench::selftest
