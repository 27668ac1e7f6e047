// Stands for the header that reads the device's clock.
#pragma once

#include <cstdint>

#include "fibers.hpp"

namespace shunt::device {

inline std::uint64_t nanoseconds() { return ::cuda_on_cpu::nanoseconds(); }

}  // namespace shunt::device
