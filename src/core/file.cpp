#include "core/file.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "core/fail.hpp"
#include "core/partial_file.hpp"

namespace shunt {

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
  if (PartialFile::can_replace(path)) {
    PartialFile file(path);
    file.write_at(0, std::as_bytes(std::span(content)));
    file.complete();
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) fail_errno("can't write {}", path);
}

void check_writable(const std::string& path) {
  if (PartialFile::can_replace(path)) {
    (void)PartialFile(path);  // made and removed
  } else if (std::filesystem::is_directory(path)) {
    errno = EISDIR;
    fail_errno("can't write {}", path);
  } else if (access(path.c_str(), W_OK) != 0) {
    fail_errno("can't write {}", path);
  }
}

}  // namespace shunt
