#include "core/file.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "core/fail.hpp"

namespace shunt {
namespace {

using std::filesystem::file_type;

/// Throws where that can't be found out: a loop of symbolic links, a folder that may not be searched.
file_type kind_of(const std::string& path) {
  std::error_code error;
  const file_type kind = std::filesystem::status(path, error).type();
  if (kind != file_type::none) return kind;
  errno = error.value();
  fail_errno("can't write {}", path);
}

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

std::string read_file(const std::string& path, std::size_t most_bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    fail(ErrorCode::invalid_argument, "{}: no regular file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::invalid_argument, "{}: can't be opened: {}", path, std::strerror(errno));
  const auto size = std::filesystem::file_size(path, ignored);
  if (size > most_bytes) fail(ErrorCode::invalid_argument, "{}: {} bytes, expected at most {}", path, size, most_bytes);
  std::string content(size, '\0');
  file.read(content.data(), static_cast<std::streamsize>(size));
  if (file.bad()) fail_errno("{}: can't be read", path);
  content.resize(static_cast<std::size_t>(file.gcount()));
  return content;
}

void write_file(const std::string& path, const std::string& content) {
  const auto kind = kind_of(path);
  if (!is_replaced(kind)) {
    if (!write_all(path, content)) fail_errno("can't write {}", path);
    return;
  }
  const std::string target = target_of(path, kind);
  const std::string partial = partial_beside(target);
  if (!write_all(partial, content) || std::rename(partial.c_str(), target.c_str()) != 0) give_up(path, partial);
}

void check_writable(const std::string& path) {
  const auto kind = kind_of(path);
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

}  // namespace shunt
