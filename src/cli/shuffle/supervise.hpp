// Runs another program on behalf of this one, through signals that end this one.
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <vector>

#include "transport/wait_ready.hpp"

namespace shunt::cli {

/// While it lives, the signals that ask this process to end (HUP, INT, QUIT, TERM) wait to be taken, so that what was
/// started can be ended first. Those that were ignored stay ignored. To be made while the process has one thread;
/// others would take a signal, and it ends the process at once.
class EndingSignals {
 public:
  EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
  /// Signals that have come since end this process now, by default.
  ~EndingSignals();

  /// Readable once one can be taken.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// 0: none has come.
  [[nodiscard]] int take() const;
  /// Signals have their usual effect again. For a child that becomes another program.
  void release() const;

 private:
  sigset_t before_;
  Descriptor descriptor_;
};

struct ProgramEnd {
  int wait_status = 0;  ///< as waitpid() tells it
  int signal = 0;       ///< asked this process to end; 0: none
};

/// Runs a program in a process group of its own, without input, and copies its output to stdout; `prepare` runs in the
/// child before. If a signal asks this process to end, or if stdout can't be written, the program gets one SIGTERM and
/// is killed if it has not ended 5 seconds later; one SIGTERM too if this process dies. Returns when it has ended.
/// Throws Error(system) if it can't be started or its output can't be passed on.
ProgramEnd supervise(std::vector<std::string> command, const EndingSignals& signals,
                     const std::function<void()>& prepare);

/// Ends this process as the signal would have, so that a shell sees which one it was.
[[noreturn]] void end_by_signal(int number);

}  // namespace shunt::cli
