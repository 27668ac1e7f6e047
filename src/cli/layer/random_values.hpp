// Device memory full of numbers that look like weights or rows. Zeros would be multiplied faster.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "shunt/dtype.hpp"

namespace shunt::cli {

/// Evenly distributed in ±scale; the same for the same seed. Waits.
void fill_with_random_values(std::byte* data, std::size_t count, DType dtype, float scale, std::uint64_t seed,
                             cudaStream_t stream);

}  // namespace shunt::cli
