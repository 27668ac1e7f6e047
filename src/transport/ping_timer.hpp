// How long a peer has not answered a ping.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

namespace shunt {

/// Any thread.
class PingTimer {
 public:
  /// Call it repeatedly while waiting for the peer. Calls send_ping() at first, and on_lost(milliseconds without an
  /// answer) once the limit has passed.
  template <class SendPing, class OnLost>
  void suspect(std::chrono::milliseconds limit, SendPing send_ping, OnLost on_lost) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    const auto last_call = std::exchange(last_call_, now);
    if (!last_call) {
      silent_ = Clock::duration::zero();
      return send_ping();
    }
    // A stop of this process between two calls counts as at most this much silence, and never as the whole limit: after
    // a stop of all ranks the answers need a moment too.
    const Clock::duration most = std::min(std::chrono::milliseconds(1000), limit / 2);
    silent_ += std::min(most, now - *last_call);
    if (silent_ >= limit) on_lost(std::chrono::duration_cast<std::chrono::milliseconds>(silent_).count());
  }

  /// The peer has answered, or sent something else.
  void end() {
    const std::lock_guard lock(mutex_);
    last_call_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::mutex mutex_;                            // guards what follows
  std::optional<Clock::time_point> last_call_;  // of suspect(), while a ping is not answered
  Clock::duration silent_{0};
};

}  // namespace shunt
