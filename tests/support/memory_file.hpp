// A file that never reaches a disk, for tests that write thousands.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <span>
#include <stdexcept>
#include <string>

namespace shunt::test {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("shunt", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("can't make a file in memory");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  /// Replaces what it holds.
  void write(std::span<const char> bytes) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("can't write a file in memory");
  }

 private:
  int descriptor_;
};

}  // namespace shunt::test
