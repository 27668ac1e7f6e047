// Wakes a thread that waits for descriptors.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/fail.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::far {

class Wake {
 public:
  Wake() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_.valid()) fail_errno("can't make an event descriptor");
  }

  [[nodiscard]] int fd() const { return event_.get(); }
  void ring() const {
    const std::uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));
  }
  void forget() const {
    std::uint64_t count = 0;
    (void)!read(event_.get(), &count, sizeof(count));
  }

 private:
  Descriptor event_;
};

}  // namespace shunt::far
