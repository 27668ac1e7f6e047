// Lists of segments with early ends, shared by few blocks.
#include <gtest/gtest.h>

#include <array>

#include "kernels/cuda/copy_rows.hpp"
#include "support/cuda/device.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kListLength = 24;
constexpr std::int64_t kSegments = 9 * kListLength + 7;  // the last list is shorter
constexpr std::size_t kRowBytes = 4 * sizeof(std::int32_t);

class CopyLists : public ::testing::TestWithParam<std::int32_t> {};

/// Token t is a row of t's that goes to slot t. List l holds its first 5 × l rows, or as many as fit.
TEST_P(CopyLists, CopyEveryRowUpToTheirEnds) {
  SHUNT_NEEDS_DEVICE();
  Arena arena(1 << 20);
  std::vector<std::array<std::int32_t, 4>> x(kSegments), expected(kSegments);
  std::vector<device::Segment> segments(kSegments, {-1, -1, -1, 0.0f});
  for (std::int32_t token = 0; token < kSegments; ++token) {
    x[static_cast<std::size_t>(token)].fill(token);
    const bool is_sent = token % kListLength < 5 * (token / kListLength);
    expected[static_cast<std::size_t>(token)].fill(is_sent ? token : -1);
    if (is_sent) segments[static_cast<std::size_t>(token)] = {token, 0, token, 1.0f};
  }
  std::byte* const rows = arena.take(kSegments * kRowBytes);
  poison(rows, kSegments * kRowBytes, nullptr, 0xff);
  device::launch(device::CopyRows{.x = reinterpret_cast<const std::byte*>(arena.put(x)),
                                  .out = arena.put(std::vector{rows}),
                                  .segments = arena.put(segments),
                                  .num_segments = kSegments,
                                  .row_bytes = kRowBytes,
                                  .stop = arena.put(std::vector{0u}),
                                  .list_length = kListLength,
                                  .segments_per_block = GetParam()},
                 nullptr);
  EXPECT_EQ(download_as(reinterpret_cast<const std::array<std::int32_t, 4>*>(rows), kSegments, nullptr), expected);
}

INSTANTIATE_TEST_SUITE_P(PerBlock, CopyLists, ::testing::Values(1, 3, 5, kListLength, 2 * kListLength));

}  // namespace
}  // namespace shunt::test
