// Preserves the program's signal handlers while foreign code runs that installs its own, as UCX does.
#pragma once

#include <signal.h>

#include <array>

namespace shunt {

/// Restores, when destroyed, the handlers that were installed when it was made. One thread at a time, and no other
/// thread may change handlers in between.
class KeptSignals {
 public:
  KeptSignals() {
    for (int number = 1; number < kEnd; ++number) (void)sigaction(number, nullptr, &before_[number]);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals() {
    for (int number = 1; number < kEnd; ++number) {
      struct sigaction now {};
      if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != before_[number].sa_handler)
        (void)sigaction(number, &before_[number], nullptr);
    }
  }

 private:
  static constexpr int kEnd = 32;  // real-time signals are left to the program
  std::array<struct sigaction, kEnd> before_{};
};

}  // namespace shunt
