// What signals do to the command line.
#pragma once

#include <signal.h>

#include "core/descriptor.hpp"

namespace shunt::cli {

/// To be called first in main. SIGHUP does again what it did when the process was started (ends it, or nothing under
/// nohup): UCX's library takes it over when it is loaded. SIGXFSZ is ignored, so that a file beyond the size limit is
/// an Error that names the file.
void set_up_signals();

/// While it lives, the signals that ask this process to end (HUP, INT, QUIT, TERM) wait to be taken, so that what was
/// started can be ended first. Those that were ignored stay ignored. To be made while the process has one thread: a
/// second one would take a signal, which then ends the process at once.
class EndingSignals {
 public:
  EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
  /// Signals that have arrived since then take effect now; by default they end this process.
  ~EndingSignals();

  /// Readable once a signal can be taken.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// The number of a signal that has arrived; 0 if there is none.
  [[nodiscard]] int take() const;
  /// Gives signals their usual effect again. For a child that becomes another program.
  void release() const;

 private:
  sigset_t before_;
  Descriptor descriptor_;
};

/// Ends this process as the signal would have, so that a shell sees which one it was.
[[noreturn]] void end_by_signal(int number);

}  // namespace shunt::cli
