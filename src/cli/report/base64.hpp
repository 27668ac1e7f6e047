// Bytes as text, for data that is part of a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shunt::cli {

/// RFC 4648, section 4.
inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i)
      word = word << 8 | (at + i < bytes.size() ? static_cast<std::uint8_t>(bytes[at + i]) : 0);
    for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[word >> (18 - 6 * i) & 63];
  }
  return text;
}

}  // namespace shunt::cli
