// How long a peer has not answered a ping.
#pragma once

#include <algorithm>
#include <chrono>

namespace shunt {

class PingTimer {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Next { ask, wait, lost };

  /// Call it repeatedly while waiting for the peer; returns what to do. `ask`: send a ping.
  Next suspect(std::chrono::milliseconds limit) {
    const auto now = Clock::now();
    if (!asked_) {
      asked_ = true;
      silent_ = Clock::duration::zero();
      last_call_ = now;
      return Next::ask;
    }
    // A stop of this process between two calls counts as at most this much silence, and never as the whole limit: after
    // a stop of all ranks the answers need a moment too.
    const Clock::duration most = std::min(std::chrono::milliseconds(1000), limit / 2);
    silent_ += std::min(most, now - last_call_);
    last_call_ = now;
    return silent_ >= limit ? Next::lost : Next::wait;
  }

  /// The peer has answered, or sent something else.
  void end() { asked_ = false; }

  [[nodiscard]] std::chrono::milliseconds length() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(silent_);
  }

 private:
  bool asked_ = false;
  Clock::time_point last_call_;
  Clock::duration silent_{0};
};

}  // namespace shunt
