// Files that are read and written as a whole.
#pragma once

#include <cstddef>
#include <string>

namespace shunt {

/// More than any description or map has a reason to be; what is parsed takes several times as much memory.
inline constexpr std::size_t kMostTextBytes = std::size_t{16} << 20;

/// Throws Error(invalid_argument) where there is no regular file that can be opened, or it is larger than this;
/// Error(system) where reading fails.
std::string read_file(const std::string& path, std::size_t most_bytes = kMostTextBytes);

/// Complete or not at all: writes beside the target and renames; straight into it where it is a device or a pipe.
/// Throws Error(system) on failure.
void write_file(const std::string& path, const std::string& content);

/// Throws Error(system) where write_file could not even begin. Changes nothing.
void check_writable(const std::string& path);

}  // namespace shunt
