// A small order-dependent hash for comparing values between ranks; not cryptographic.
#pragma once

#include <cstdint>
#include <span>

namespace shunt {

class Hasher {
 public:
  /// Adds integers and enumerators, in order.
  template <class... Value>
  Hasher& add(Value... values) {
    (mix(static_cast<std::uint64_t>(values)), ...);
    return *this;
  }

  template <class T>
  Hasher& add_all(std::span<const T> values) {
    add(values.size());
    for (const T& v : values) add(v);
    return *this;
  }

  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  /// The finaliser of splitmix64 over the running state.
  void mix(std::uint64_t value) {
    std::uint64_t z = state_ ^ (value + 0x9e3779b97f4a7c15ull + (state_ << 6));
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    state_ = z ^ (z >> 31);
  }

  std::uint64_t state_ = 0x5348554e54ull;  // "SHUNT"
};

}  // namespace shunt
