// Makes this process's files stop growing at a size, as a full disk would.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace shunt::test {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);  // so that write() fails and nothing else happens
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
};

}  // namespace shunt::test
