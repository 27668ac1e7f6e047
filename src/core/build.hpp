// Which build of the library this is.
#pragma once

#include <string_view>

namespace shunt {

/// Ends with a zero. Version and a hash of the library's sources; CMake makes it (cmake/build_id.cmake). Ranks of
/// different builds refuse each other, since what they exchange may differ.
std::string_view build_id();

}  // namespace shunt
