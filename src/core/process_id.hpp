// Identity of a process on its machine, also among containers with equal process numbers; and the machine's name.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

namespace shunt {

struct ProcessId {
  std::uint64_t name_space;  ///< of process numbers; 0 if unknown
  std::int64_t number;

  static ProcessId own() {
    struct stat name_space {};
    return {stat("/proc/self/ns/pid", &name_space) == 0 ? name_space.st_ino : 0, getpid()};
  }
  bool operator==(const ProcessId&) const = default;
};

inline std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace shunt
