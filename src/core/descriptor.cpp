#include "core/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "core/fail.hpp"

namespace shunt {

int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int saved = errno;
  close(fd);
  errno = saved;
  if (moved < 0) fail_errno("can't move descriptor {} above the standard ones", fd);
  return moved;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace shunt
