#include "core/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "core/descriptor.hpp"
#include "core/fail.hpp"

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
    (void)PartialFile(path);  // created and removed
  } else if (std::filesystem::is_directory(path)) {
    errno = EISDIR;
    fail_errno("can't write {}", path);
  } else if (access(path.c_str(), W_OK) != 0) {
    fail_errno("can't write {}", path);
  }
}

namespace {

constexpr const char* kDescriptors = "/proc/self/fd";

}  // namespace

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

// An unnamed file disappears with its process, however that ends. Not all file systems support them.
PartialFile::PartialFile(const std::string& path) : path_(path) {
  if (!can_replace(path)) fail(ErrorCode::invalid_argument, "{}: no regular file", path);
  target_ = std::filesystem::exists(path) ? std::filesystem::canonical(path).string() : path;
  const std::filesystem::path folder = std::filesystem::absolute(target_).parent_path();
  if (access(kDescriptors, X_OK) == 0)
    descriptor_ = above_standard(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (descriptor_ >= 0) return;
  give_name([&](const char* name) {
    descriptor_ = above_standard(::open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return descriptor_ >= 0;
  });
}

template <class Make>
void PartialFile::give_name(const Make& make) {
  for (int number = 0;; ++number) {
    const std::string name = fmt::format("{}.{}.{}.partial", target_, getpid(), number);
    if (make(name.c_str())) {
      name_ = name;
      return;
    }
    if (errno != EEXIST) fail_errno("can't write {}", path_);
  }
}

PartialFile::~PartialFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!name_.empty()) std::remove(name_.c_str());
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
  // Without fsync, a machine that loses power may keep the new name without its content. It takes long, so it comes
  // before the file has any name that a kill would leave behind.
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail_errno("can't write {}", path_);
  // A rename can replace a file; a link can't.
  if (name_.empty())
    give_name([&](const char* name) {
      const std::string unnamed = fmt::format("{}/{}", kDescriptors, descriptor_);
      return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
    });
  // Some file systems report a lack of space only on close.
  const bool is_closed = close(std::exchange(descriptor_, -1)) == 0;
  if (!is_closed || std::rename(name_.c_str(), target_.c_str()) != 0) fail_errno("can't write {}", path_);
  name_.clear();
}

}  // namespace shunt
