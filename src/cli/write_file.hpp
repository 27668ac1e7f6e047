// Files that are complete or not there.
#pragma once

#include <string>

namespace shunt::cli {

/// Writes beside the target and renames. Throws Error(system) and leaves nothing on failure.
void write_file(const std::string& path, const std::string& content);

}  // namespace shunt::cli
