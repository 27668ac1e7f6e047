// Runs another program on behalf of this one, through signals that end this one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/signals.hpp"

namespace shunt::cli {

struct ProgramEnd {
  int wait_status = 0;  ///< as waitpid() tells it
  int signal = 0;       ///< the one that asked this process to end; 0: none
};

/// Runs a program in a process group of its own, without input, and copies its output to stdout; `prepare` runs in the
/// child before. If a signal asks this process to end, or if stdout can't be written, the program gets one SIGTERM and
/// is killed if it has not ended 5 seconds later; one SIGTERM too if this process dies. Returns when it has ended.
/// Throws Error(system) if it can't be started or its output can't be passed on.
ProgramEnd supervise(std::vector<std::string> command, const EndingSignals& signals,
                     const std::function<void()>& prepare);

}  // namespace shunt::cli
