// Files that are complete or not there.
#pragma once

#include <string>

namespace shunt::cli {

/// Writes beside the target and renames; straight into it where it is a device or a pipe. Throws Error(system) on
/// failure.
void write_file(const std::string& path, const std::string& content);

}  // namespace shunt::cli
