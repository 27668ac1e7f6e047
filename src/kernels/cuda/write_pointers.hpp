// Pointers that reach the device with the launch itself: no copy, and nothing of the host's that must live on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace shunt::device {

void launch_write_pointers(std::byte** to, std::span<std::byte* const> pointers, cudaStream_t stream);
void preload_write_pointers();

}  // namespace shunt::device
