#include "cli/write_file.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "core/fail.hpp"

namespace shunt::cli {

void write_file(const std::string& path, const std::string& content) {
  const std::string partial = fmt::format("{}.{}.partial", path, getpid());
  std::ofstream file(partial, std::ios::binary);
  file << content;
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0) {
    const int cause = errno;
    std::remove(partial.c_str());
    errno = cause;
    fail_errno("can't write {}", path);
  }
}

}  // namespace shunt::cli
