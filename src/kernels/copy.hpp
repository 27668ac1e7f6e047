// Row copies.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/store.hpp"

namespace shunt {

/// Reads a row once and writes it to each target. Needs no alignment; source and targets must not overlap.
void copy_row(const std::byte* source, std::size_t bytes, std::span<std::byte* const> targets, Store store);

}  // namespace shunt
