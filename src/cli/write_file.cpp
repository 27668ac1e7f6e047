#include "cli/write_file.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/fail.hpp"

namespace shunt::cli {
namespace {

using std::filesystem::file_type;

/// A device or a pipe is written to, never replaced.
bool is_replaced(file_type kind) { return kind == file_type::not_found || kind == file_type::regular; }

/// Through a symbolic link the file it leads to is replaced.
std::string target_of(const std::string& path, file_type kind) {
  return kind == file_type::regular ? std::filesystem::canonical(path).string() : path;
}

std::string partial_beside(const std::string& target) { return fmt::format("{}.{}.partial", target, getpid()); }

bool write_all(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  return static_cast<bool>(file);
}

[[noreturn]] void give_up(const std::string& path, const std::string& partial) {
  const int cause = errno;
  std::remove(partial.c_str());
  errno = cause;
  fail_errno("can't write {}", path);
}

}  // namespace

void write_file(const std::string& path, const std::string& content) {
  const auto kind = std::filesystem::status(path).type();
  if (!is_replaced(kind)) {
    if (!write_all(path, content)) fail_errno("can't write {}", path);
    return;
  }
  const std::string target = target_of(path, kind);
  const std::string partial = partial_beside(target);
  if (!write_all(partial, content) || std::rename(partial.c_str(), target.c_str()) != 0) give_up(path, partial);
}

void check_writable(const std::string& path) {
  const auto kind = std::filesystem::status(path).type();
  if (is_replaced(kind)) {
    const std::string partial = partial_beside(target_of(path, kind));
    if (!write_all(partial, "")) give_up(path, partial);
    std::remove(partial.c_str());
  } else if (kind == file_type::directory) {
    errno = EISDIR;
    fail_errno("can't write {}", path);
  } else if (access(path.c_str(), W_OK) != 0) {
    fail_errno("can't write {}", path);
  }
}

void flush_stdout() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) fail_errno("can't write to standard output");
}

}  // namespace shunt::cli
