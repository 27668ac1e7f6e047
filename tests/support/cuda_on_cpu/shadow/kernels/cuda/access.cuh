// Stands for the header that tells caches what to keep. Asynchronous fetches are of devices that are not emulated.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace shunt::device {

template <class Word>
Word load_evict_last(const Word* from) {
  return *from;
}
template <class Word>
void store_evict_first(Word* to, Word v) {
  *to = v;
}
template <class Wide>
Wide load_once(const Wide* from) {
  return *from;
}
template <class Wide>
void store_once(Wide* to, const Wide& v) {
  *to = v;
}

inline void fetch_once(std::uint32_t, const uint4*) { std::abort(); }
inline void commit_fetches() { std::abort(); }
template <int kGroups>
void wait_for_fetches() {
  std::abort();
}

}  // namespace shunt::device
