#include "cli/report/png.hpp"

#include <algorithm>
#include <string_view>

#include "core/fail.hpp"

namespace shunt::cli {
namespace {

void append_big_endian(std::string& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
}

/// CRC-32 of a chunk, as PNG, annex D computes it.
std::uint32_t crc(std::string_view bytes) {
  std::uint32_t sum = 0xffffffff;
  for (const char byte : bytes) {
    sum ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum & 1 ? sum >> 1 ^ 0xedb88320 : sum >> 1;
  }
  return ~sum;
}

std::uint32_t adler(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<std::uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

/// A zlib stream (RFC 1950) of stored blocks (RFC 1951, 3.2.4).
std::string stored(std::string_view bytes) {
  constexpr std::size_t kMostInBlock = 65535;
  std::string stream = "\x78\x01";
  for (std::size_t at = 0; at < bytes.size(); at += kMostInBlock) {
    const std::size_t size = std::min(kMostInBlock, bytes.size() - at);
    stream += at + size == bytes.size() ? '\1' : '\0';
    for (const std::size_t number : {size, ~size})
      for (const int shift : {0, 8}) stream += static_cast<char>(number >> shift & 0xff);
    stream += bytes.substr(at, size);
  }
  append_big_endian(stream, adler(bytes));
  return stream;
}

void append_chunk(std::string& png, std::string_view name, std::string_view data) {
  append_big_endian(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = png.size();
  png.append(name).append(data);
  append_big_endian(png, crc(std::string_view(png).substr(begin)));
}

std::string encode(const Image& image) {
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(image.width));
  append_big_endian(header, static_cast<std::uint32_t>(image.height));
  header += std::string("\x08\x03\x00\x00\x00", 5);  // 8 bits a pixel, palette, deflate, filters, not interlaced
  std::string colours;
  for (const Rgb& colour : image.palette) colours.append(colour.begin(), colour.end());
  std::string rows;
  for (std::size_t y = 0; y < image.height; ++y) {
    rows += '\0';  // no filter
    const auto row = image.pixels.begin() + static_cast<std::ptrdiff_t>(y * image.width);
    rows.append(row, row + static_cast<std::ptrdiff_t>(image.width));
  }
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "PLTE", colours);
  append_chunk(png, "IDAT", stored(rows));
  append_chunk(png, "IEND", "");
  return png;
}

std::string base64(std::string_view bytes) {
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

}  // namespace

std::string data_uri(const Image& image) {
  SHUNT_CHECK(image.width > 0 && image.height > 0 && image.pixels.size() == image.width * image.height);
  return "data:image/png;base64," + base64(encode(image));
}

}  // namespace shunt::cli
