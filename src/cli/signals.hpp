// Signal handling of the command line.
#pragma once

#include <signal.h>

#include "core/descriptor.hpp"

namespace shunt::cli {

/// To be called first in main. Restores the inherited action of SIGHUP (end the process, or ignore under nohup), which
/// UCX's library replaces when it is loaded. Ignores SIGXFSZ, so that a file beyond the size limit is an Error that
/// names the file.
void set_up_signals();

/// During its lifetime, the signals that end this process (HUP, INT, QUIT, TERM) are blocked and can be read with
/// take(), so that child processes can be ended first. Ignored signals stay ignored. Construct it while the process has
/// one thread: a second thread would not block the signals, and one of them would end the process at once.
class EndingSignals {
 public:
  EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
  /// Unblocks the signals; pending ones take effect, which by default ends this process.
  ~EndingSignals();

  /// Readable if a signal is pending.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// The number of a pending signal; 0 if there is none.
  [[nodiscard]] int take() const;
  /// Unblocks the signals, for a child that executes another program.
  void release() const;

 private:
  sigset_t before_;
  Descriptor descriptor_;
};

/// Ends this process by the signal, so that the shell sees its number.
[[noreturn]] void end_by_signal(int number);

}  // namespace shunt::cli
