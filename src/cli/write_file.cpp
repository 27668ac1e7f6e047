#include "cli/write_file.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "core/fail.hpp"

namespace shunt::cli {

namespace {

void write_all(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) fail_errno("can't write {}", path);
}

}  // namespace

void write_file(const std::string& path, const std::string& content) {
  // A device or a pipe is written to, never replaced.
  const auto kind = std::filesystem::status(path).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular)
    return write_all(path, content);
  // Through a symbolic link the file it leads to is replaced.
  const std::string target =
      kind == std::filesystem::file_type::regular ? std::filesystem::canonical(path).string() : path;
  const std::string partial = fmt::format("{}.{}.partial", target, getpid());
  write_all(partial, content);
  if (std::rename(partial.c_str(), target.c_str()) != 0) {
    const int cause = errno;
    std::remove(partial.c_str());
    errno = cause;
    fail_errno("can't write {}", path);
  }
}

}  // namespace shunt::cli
