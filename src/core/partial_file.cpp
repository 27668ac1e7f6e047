#include "core/partial_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "core/fail.hpp"

namespace shunt {

bool PartialFile::can_replace(const std::string& path) {
  using std::filesystem::file_type;
  std::error_code error;
  const file_type kind = std::filesystem::status(path, error).type();
  if (kind == file_type::none) {
    errno = error.value();
    fail_errno("can't write {}", path);
  }
  return kind == file_type::not_found || kind == file_type::regular;
}

PartialFile::PartialFile(const std::string& path) : path_(path) {
  if (!can_replace(path)) fail(ErrorCode::invalid_argument, "{}: no regular file", path);
  target_ = std::filesystem::exists(path) ? std::filesystem::canonical(path).string() : path;
  for (int number = 0; descriptor_ < 0; ++number) {
    partial_ = fmt::format("{}.{}.{}.partial", target_, getpid(), number);
    descriptor_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail_errno("can't write {}", path);
  }
}

PartialFile::~PartialFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  std::remove(partial_.c_str());
}

void PartialFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno("can't write {}", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void PartialFile::complete() {
  // Some file systems say only now that there was no room.
  const bool is_closed = close(descriptor_) == 0;
  descriptor_ = -1;
  if (is_closed && std::rename(partial_.c_str(), target_.c_str()) == 0) return;
  const int cause = errno;
  std::remove(partial_.c_str());
  errno = cause;
  fail_errno("can't write {}", path_);
}

}  // namespace shunt
