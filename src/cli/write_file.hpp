// Files that are complete or not there.
#pragma once

#include <string>

namespace shunt::cli {

/// Writes beside the target and renames; straight into it where it is a device or a pipe. Throws Error(system) on
/// failure.
void write_file(const std::string& path, const std::string& content);

/// Throws Error(system) where write_file could not even begin. Changes nothing.
void check_writable(const std::string& path);

/// Writes out what was printed. Throws Error(system) if some of it could not be.
void flush_stdout();

}  // namespace shunt::cli
