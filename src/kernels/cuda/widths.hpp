// From an access width that is known at run time to a type.
#pragma once

#include <vector_types.h>

#include <cstdint>

namespace shunt::device {

/// Calls work(Word{}) for an unsigned type of so many bytes.
template <class Work>
void for_width(std::int32_t bytes, const Work& work) {
  switch (bytes) {
    case 16: return work(uint4{});
    case 8: return work(uint2{});
    case 4: return work(std::uint32_t{});
    case 2: return work(std::uint16_t{});
    default: return work(std::uint8_t{});
  }
}

template <class Work>
void for_every_width(const Work& work) {
  for (const std::int32_t bytes : {16, 8, 4, 2, 1}) for_width(bytes, work);
}

}  // namespace shunt::device
