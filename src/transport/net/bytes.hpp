// Numbers as the bytes that travel: little endian, without padding.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace shunt::net {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline void append(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <std::integral T>
void append(Bytes& bytes, T number) {
  append(bytes, std::as_bytes(std::span(&number, 1)));
}

/// Takes bytes apart. Who asks for more than there is gets zeros and finds `ok()` false.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

  std::span<const std::byte> take(std::size_t num_bytes) {
    ok_ = ok_ && num_bytes <= bytes_.size();
    const auto taken = bytes_.first(ok_ ? num_bytes : 0);
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

  std::span<const std::byte> take_rest() { return take(bytes_.size()); }

  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value{};
    if (const auto taken = take(sizeof(T)); ok_) std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace shunt::net
