// Which process of a machine this is, also among containers that number theirs alike.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

namespace shunt {

struct ProcessId {
  std::uint64_t name_space;  ///< of process numbers; 0 where the machine does not tell
  std::int64_t number;

  static ProcessId own() {
    struct stat name_space {};
    return {stat("/proc/self/ns/pid", &name_space) == 0 ? name_space.st_ino : 0, getpid()};
  }
  bool operator==(const ProcessId&) const = default;
};

}  // namespace shunt
