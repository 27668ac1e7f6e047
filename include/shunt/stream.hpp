// A CUDA stream as an opaque pointer: including this needs no CUDA header.
#pragma once

#include "shunt/language.hpp"

struct CUstream_st;

namespace shunt {

/// The same type as cudaStream_t.
using Stream = CUstream_st*;

}  // namespace shunt
