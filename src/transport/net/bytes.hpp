// Values as the bytes that travel: little endian, without padding.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::net {

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void append(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <class T>
requires(std::is_integral_v<T> || std::is_enum_v<T>) void append(Bytes& bytes, T number) {
  append(bytes, std::as_bytes(std::span(&number, 1)));
}

/// The length goes before the text.
inline void append(Bytes& bytes, const std::string& text) {
  append(bytes, static_cast<std::uint32_t>(text.size()));
  append(bytes, bytes_of(text));
}

/// All of them, one after the other.
template <class... T>
Bytes pack(const T&... values) {
  Bytes bytes;
  (append(bytes, values), ...);
  return bytes;
}

/// Takes bytes apart. Reading more than there is gives zeros and makes `ok()` false.
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
  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value{};
    if (const auto taken = take(sizeof(T)); ok_) std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

  template <class T>
  void read(T& value) {
    value = take<T>();
  }
  void read(std::string& text) { text = text_of(take(take<std::uint32_t>())); }
  /// The rest.
  void read(Bytes& rest) {
    const auto taken = take(bytes_.size());
    rest.assign(taken.begin(), taken.end());
  }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

/// The inverse of pack(): true if the bytes are what these values need.
template <class... T>
bool unpack(std::span<const std::byte> bytes, T&... values) {
  ByteReader reader(bytes);
  (reader.read(values), ...);
  return reader.ok() && reader.at_end();
}

}  // namespace shunt::net
