#include "transport/wait_ready.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "core/fail.hpp"

namespace shunt {

bool wait_ready(std::span<pollfd> entries, Deadline deadline) {
  for (;;) {
    // Rounded up, so that the deadline has passed when this returns false.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ready =
        poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000)));
    if (ready > 0) return true;
    if (ready == 0 && left.count() <= 0) return false;
    if (ready < 0 && errno != EINTR) fail_errno("can't poll {} sockets", entries.size());
  }
}

Wake::Wake() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_.valid()) fail_errno("can't make an event descriptor");
}

void Wake::ring() const { (void)eventfd_write(event_.get(), 1); }

void Wake::clear() const {
  eventfd_t count = 0;
  (void)eventfd_read(event_.get(), &count);
}

}  // namespace shunt
