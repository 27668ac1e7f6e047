// Products over named dimensions, as products of matrices.
#pragma once

#include <span>

#include "runtime/view.hpp"

namespace shunt::runtime {

enum class Result : std::uint8_t { overwritten, added_to };

/// c = the sum of a × b over the dimensions `over`, which a and b both have and c has not, or that plus c. Every other
/// dimension of a or b is one of c. All f32; c overlaps neither a nor b. Computes on the calling thread.
///
/// Dimensions fall into four groups: of a and c (rows of a matrix), of b and c (columns), of a and b (what is summed),
/// and of all three (one product for each of their elements). Neighbours in memory count as one; the largest choice of
/// one per group that the library can read and write in place becomes the matrices, and loops do the others. If there
/// is none, operands are copied.
void contract(const View& a, const View& b, std::span<const graph::DimId> over, const View& c,
              Result result = Result::overwritten);

}  // namespace shunt::runtime
