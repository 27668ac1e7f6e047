// Small pictures inside a page: PNG (ISO/IEC 15948) with a palette, as a data URI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shunt::cli {

using Rgb = std::array<std::uint8_t, 3>;
using Palette = std::array<Rgb, 256>;

struct Image {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;  ///< [height, width], numbers of colours
  Palette palette;
};

/// Not compressed: pictures here have as many pixels as a matrix has numbers, and no library is needed for it.
std::string data_uri(const Image& image);

}  // namespace shunt::cli
