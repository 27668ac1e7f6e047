// A CUDA stream, by its pointer alone: what includes this needs no CUDA header.
#pragma once

#include "shunt/language.hpp"

struct CUstream_st;

namespace shunt {

/// What CUDA calls cudaStream_t.
using Stream = CUstream_st*;

}  // namespace shunt
