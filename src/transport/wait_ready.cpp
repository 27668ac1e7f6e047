#include "transport/wait_ready.hpp"

#include <algorithm>
#include <cstdint>

#include "core/fail.hpp"

namespace shunt {

bool wait_ready(std::span<pollfd> entries, Deadline deadline) {
  for (;;) {
    // Rounded up: who is told that the deadline has passed must find that it has.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ready =
        poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready == 0 && left.count() <= 0) return false;
    if (ready < 0 && errno != EINTR) fail_errno("can't poll {} sockets", entries.size());
  }
}

}  // namespace shunt
