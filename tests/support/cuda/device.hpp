// What tests on a device share: whether there is one, and memory on it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shunt/stream.hpp"

namespace shunt::test {

/// Empty if there is a device, else why there is none.
std::string why_no_device();

/// Puts its work on the stream and waits for it.
void upload(std::byte* to, std::span<const std::byte> from, Stream stream);

/// Device memory that peers can't address. Allocated at once, as allocating may wait for ranks that wait for this one.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Aligned to 256 bytes plus `shift`; all of it is given back by reset().
  [[nodiscard]] std::byte* take(std::size_t bytes, std::size_t shift = 0);
  /// A copy of the values.
  template <class T>
  [[nodiscard]] T* put(const std::vector<T>& values, Stream stream = nullptr, std::size_t shift = 0) {
    const auto bytes = std::as_bytes(std::span(values));
    std::byte* const place = take(bytes.size(), shift);
    upload(place, bytes, stream);
    return reinterpret_cast<T*>(place);
  }
  void reset() { used_ = 0; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  std::size_t used_ = 0;
};

// As upload.
void poison(std::byte* data, std::size_t bytes, Stream stream, int pattern = 0xa5);
std::vector<std::byte> download(const void* from, std::size_t bytes, Stream stream);

template <class T>
std::vector<T> download_as(const T* from, std::size_t count, Stream stream) {
  const auto bytes = download(from, count * sizeof(T), stream);
  std::vector<T> values(count);
  if (count > 0) std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace shunt::test

/// First in every test that needs a device.
#define SHUNT_NEEDS_DEVICE() \
  if (const std::string why = ::shunt::test::why_no_device(); !why.empty()) GTEST_SKIP() << why
