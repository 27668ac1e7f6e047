// Identity of this build of the library.
#pragma once

#include <string_view>

namespace shunt {

/// Version and a hash of the library's sources, zero-terminated; made by CMake (cmake/build_id.cmake). Ranks of
/// different builds refuse each other, because the formats that they exchange may differ.
std::string_view build_id();

}  // namespace shunt
