// Keeps the program's signal handlers while foreign code runs that would install its own, as UCX does.
#pragma once

#include <signal.h>

#include <array>

namespace shunt {

/// What each signal did when this was made, it does again afterwards. One thread at a time, and no other may change
/// handlers meanwhile.
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
  static constexpr int kEnd = 32;  // real-time signals are the program's own
  std::array<struct sigaction, kEnd> before_{};
};

}  // namespace shunt
