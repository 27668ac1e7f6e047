// Loads every kernel before ranks wait for each other: loading one later may need an idle device.
#pragma once

namespace shunt::device {

/// Of the current device.
void preload_kernels();

}  // namespace shunt::device
