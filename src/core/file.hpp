// Files that are read and written as a whole, and files that appear under their name only once they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shunt {

/// Larger than any legitimate description or map; parsing takes several times as much memory.
inline constexpr std::size_t kMostTextBytes = std::size_t{16} << 20;

/// Throws Error(invalid_argument) if `path` is not a regular file that can be opened, or is larger than most_bytes, and
/// Error(system) if reading fails.
std::string read_file(const std::string& path, std::size_t most_bytes = kMostTextBytes);

/// Atomic: writes beside the target and renames; a device or a pipe is written directly. Throws Error(system) on
/// failure.
void write_file(const std::string& path, const std::string& content);

/// Throws Error(system) if write_file could not even begin. Changes nothing.
void check_writable(const std::string& path);

class PartialFile {
 public:
  /// True if `path` names a regular file, also through symbolic links, or nothing. Throws Error(system) if that can't
  /// be determined: a loop of symbolic links, a folder without permission.
  [[nodiscard]] static bool can_replace(const std::string& path);

  /// Opens a new file in the folder of `path`, unnamed if the file system supports that. Throws Error(invalid_argument)
  /// if `path` is a folder, a pipe or a device, and Error(system) if the file can't be created.
  explicit PartialFile(const std::string& path);
  /// Removes the file unless complete() succeeded.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// Throws Error(system).
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  /// Replaces the file at `path`, also through a symbolic link. Throws Error(system). Nothing can be written
  /// afterwards.
  void complete();

 private:
  /// Calls make(name) with names beside the target until it succeeds.
  template <class Make>
  void give_name(const Make& make);

  std::string path_;
  std::string target_;
  std::string name_;  // empty: unnamed
  int descriptor_ = -1;
};

}  // namespace shunt
