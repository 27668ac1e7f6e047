// A file that is there under its name only once it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shunt {

class PartialFile {
 public:
  /// Whether `path` names a regular file, through symbolic links too, or nothing yet. Throws Error(system) where that
  /// can't be found out: a loop of symbolic links, a folder that may not be searched.
  [[nodiscard]] static bool can_replace(const std::string& path);

  /// Opens a new file in the folder of `path`, without a name where the file system can do that. Throws
  /// Error(invalid_argument) where `path` is a folder, a pipe or a device, and Error(system) where no file can be made.
  explicit PartialFile(const std::string& path);
  /// Removes what complete() has not made the file.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// Throws Error(system).
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  /// Replaces what `path` names, through a symbolic link too. Throws Error(system). Nothing can be written afterwards.
  void complete();

 private:
  /// Calls make(name) for names beside the target until it succeeds.
  template <class Make>
  void give_name(const Make& make);

  std::string path_;
  std::string target_;
  std::string name_;  // empty: it has none
  int descriptor_ = -1;
};

}  // namespace shunt
