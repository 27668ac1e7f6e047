#include "cli/signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdlib>

#include "core/fail.hpp"

namespace shunt::cli {
namespace {

struct sigaction inherited_hangup = {};

void save_hangup_action() { sigaction(SIGHUP, nullptr, &inherited_hangup); }

// Functions in this section run before the constructors of shared libraries, UCX's among them.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = save_hangup_action;

}  // namespace

void set_up_signals() {
  sigaction(SIGHUP, &inherited_hangup, nullptr);
  signal(SIGXFSZ, SIG_IGN);
}

EndingSignals::EndingSignals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&taken, number);
  }
  descriptor_ = Descriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_.valid()) fail_errno("can't watch for signals");
  sigprocmask(SIG_BLOCK, &taken, &before_);
}

EndingSignals::~EndingSignals() { release(); }

int EndingSignals::take() const {
  signalfd_siginfo info = {};
  return read(descriptor_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

void EndingSignals::release() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

void end_by_signal(int number) {
  signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(number);
  std::abort();  // not reached
}

}  // namespace shunt::cli
