// Which devices this process sees, for `shunt selftest`.
#pragma once

#include <vector>

#include "engine/device_facts.hpp"

namespace shunt::device {

/// By index, without a context on any. Throws Error(unsupported) where there is no driver or no device.
std::vector<DeviceFacts> describe_devices();

}  // namespace shunt::device
