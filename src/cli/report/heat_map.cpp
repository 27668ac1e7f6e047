#include "cli/report/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "cli/report/base64.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

using Rgb = std::array<std::uint8_t, 3>;
using Palette = std::array<Rgb, 256>;

/// An image with a palette.
struct Image {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;  ///< [height, width], indices of the palette
  Palette palette;
};

void append_big_endian(std::string& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
}

/// CRC-32 of a chunk, as in PNG, annex D.
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

/// An uncompressed PNG (ISO/IEC 15948) with a palette. Images here have one pixel per element of a matrix, so
/// compression is not worth a library.
std::string data_uri(const Image& image) {
  SHUNT_CHECK(image.width > 0 && image.height > 0 && image.pixels.size() == image.width * image.height);
  return "data:image/png;base64," + base64(encode(image));
}

// More can't be distinguished on a screen. The limit keeps an image below 350 KB.
constexpr std::size_t kMostPixels = 512;
constexpr std::size_t kMostLabels = 12;
constexpr std::size_t kMostOutlined = 64;  // blocks; more outlines would hide the image

/// Steps of matplotlib's magma, whose brightness increases with the value.
constexpr std::array<Rgb, 10> kStops = {{{0x06, 0x05, 0x12},
                                         {0x18, 0x0f, 0x3d},
                                         {0x44, 0x0f, 0x76},
                                         {0x72, 0x1f, 0x81},
                                         {0x9e, 0x2f, 0x7f},
                                         {0xcd, 0x40, 0x71},
                                         {0xf1, 0x60, 0x5d},
                                         {0xfd, 0x96, 0x68},
                                         {0xfe, 0xca, 0x8d},
                                         {0xfc, 0xfd, 0xbf}}};

Palette palette() {
  Palette colours;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const double at = static_cast<double>(i * (kStops.size() - 1)) / static_cast<double>(colours.size() - 1);
    const auto below = std::min(static_cast<std::size_t>(at), kStops.size() - 2);
    for (std::size_t c = 0; c < 3; ++c)
      colours[i][c] = static_cast<std::uint8_t>(
          std::lround(std::lerp(kStops[below][c], kStops[below + 1][c], at - static_cast<double>(below))));
  }
  return colours;
}

/// One pixel per cell, or per square of cells with their mean.
Image draw(const HeatMap& map) {
  const std::size_t cells = (map.size + kMostPixels - 1) / kMostPixels;
  const std::size_t side = (map.size + cells - 1) / cells;
  const auto end = [&](std::size_t pixel) { return std::min(map.size, (pixel + 1) * cells); };
  Image image = {side, side, std::vector<std::uint8_t>(side * side), palette()};
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0; x < side; ++x) {
      double sum = 0;
      for (std::size_t row = y * cells; row < end(y); ++row)
        for (std::size_t column = x * cells; column < end(x); ++column)
          sum += std::clamp(map.level(row, column), 0.0, 1.0);
      const auto count = static_cast<double>((end(y) - y * cells) * (end(x) - x * cells));
      image.pixels[y * side + x] = static_cast<std::uint8_t>(std::lround(255 * sum / count));
    }
  return image;
}

std::string block(const char* kind, double begin, double end) {
  return fmt::format("<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.3f}%\" width=\"{:.3f}%\" height=\"{:.3f}%\"/>\n", kind,
                     begin, begin, end - begin, end - begin);
}

/// Outlines of blocks on the diagonal, borders of groups, and numbers beside the map.
std::string draw_blocks(const HeatMap& map) {
  const std::size_t blocks = map.block_begin.size() - 1;
  const std::size_t stride = (blocks + kMostLabels - 1) / kMostLabels;
  const auto percent = [&](std::size_t block) {
    return 100 * static_cast<double>(map.block_begin[block]) / static_cast<double>(map.size);
  };
  std::string lines, squares, labels;
  for (std::size_t i = 0; i < blocks; ++i) {
    const double begin = percent(i), end = percent(i + 1), middle = (begin + end) / 2;
    if (i > 0 && blocks <= kMostOutlined)
      lines += fmt::format(
          "<line x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"0\" y2=\"100%\"/>"
          "<line y1=\"{0:.3f}%\" y2=\"{0:.3f}%\" x1=\"0\" x2=\"100%\"/>\n",
          begin);
    if (begin == end) continue;
    if (blocks <= kMostOutlined) squares += block("block", begin, end);
    if (i % stride == 0)
      labels += fmt::format(
          "<text x=\"{0:.3f}%\" y=\"-8\">{1}</text><text x=\"-12\" y=\"{0:.3f}%\" dy=\".35em\">{1}</text>\n", middle,
          i);
  }
  const bool has_groups = map.blocks_per_group > 0 && blocks / map.blocks_per_group <= kMostOutlined;
  for (std::size_t i = 0; has_groups && i < blocks; i += map.blocks_per_group)
    squares += block("node", percent(i), percent(std::min(blocks, i + map.blocks_per_group)));
  return lines + squares + labels;
}

}  // namespace

std::string to_html(const HeatMap& map) {
  const Caption& caption = map.caption;
  return fmt::format(
      "<figure><figcaption>{0}<span>{1}</span></figcaption>\n"
      "<svg class=\"heat\" id=\"{2}\" role=\"img\" aria-labelledby=\"{2}-title {2}-desc\"><title "
      "id=\"{2}-title\">{3}</title>"
      "<desc id=\"{2}-desc\">{4}</desc>\n"
      "<image width=\"100%\" height=\"100%\" preserveAspectRatio=\"none\" href=\"{5}\"/>\n{6}</svg></figure>\n",
      prose(caption.title), prose(caption.description), caption.id, escape(caption.title), escape(caption.description),
      data_uri(draw(map)), draw_blocks(map));
}

std::string heat_scale(const std::string& darkest, const std::string& brightest) {
  std::string stops;
  for (const Rgb& stop : kStops) stops += fmt::format(",#{:02x}{:02x}{:02x}", stop[0], stop[1], stop[2]);
  return fmt::format(
      "<div class=\"scale\"><span>{}</span><span style=\"background:linear-gradient(90deg{})\"></span><span>{}</span>"
      "</div>\n",
      escape(darkest), stops, escape(brightest));
}

}  // namespace shunt::cli
