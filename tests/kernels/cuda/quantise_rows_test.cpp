// Compares fp8 rows made on a device with those of the CPU's kernel, bit for bit.
#include "kernels/cuda/quantise_rows.hpp"

#include <gtest/gtest.h>

#include "kernels/fp8.hpp"
#include "kernels/rows.hpp"
#include "support/cuda/device.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 2;
constexpr std::int32_t kTopk = 3;
constexpr std::byte kPoison{0xa5};

/// The rows and scales of every rank; those without a token stay poisoned.
struct Delivered {
  std::vector<std::byte> rows;
  std::vector<std::byte> scales;
  bool operator==(const Delivered&) const = default;
};

class QuantiseRowsTest : public ::testing::Test {
 protected:
  void SetUp() override { SHUNT_NEEDS_DEVICE(); }

  std::byte* put_poison(std::size_t bytes) {
    std::byte* const place = arena().take(bytes);
    poison(place, bytes, nullptr);
    return place;
  }

  /// The first token has no slot, others have up to three slots on both ranks, between which other slots stay empty.
  /// shift: offset of x from an aligned address.
  void expect_as_on_the_cpu(const std::vector<std::byte>& x, DType dtype, std::size_t hidden,
                            const std::vector<float>& scales = {}, std::size_t shift = 0) {
    arena().reset();
    const std::size_t row_bytes = hidden * size_of(dtype);
    const std::size_t num_tokens = x.size() / row_bytes;
    const std::size_t num_scales = scales_per_row(hidden);
    const std::size_t num_slots = num_tokens * kTopk;
    std::vector<Delivered> expected(
        kRanks, {std::vector(num_slots * hidden, kPoison), std::vector(num_slots * num_scales * 4, kPoison)});
    std::vector<device::Term> terms;
    for (std::size_t token = 0; token < num_tokens; ++token) {
      std::vector<std::uint8_t> elements(hidden);
      std::vector<float> made(num_scales);
      if (dtype == fp8_e4m3) {
        std::memcpy(elements.data(), x.data() + token * row_bytes, row_bytes);
        std::copy_n(scales.begin() + static_cast<std::ptrdiff_t>(token * num_scales), num_scales, made.begin());
      } else {
        quantise_row(x.data() + token * row_bytes, dtype, hidden, elements.data(), made.data());
      }
      for (std::size_t i = 0; i < kTopk; ++i) {
        if (token == 0 || i > token % kTopk) {
          terms.push_back({-1, -1, 0.0f, -1, 0});
          continue;
        }
        const std::size_t slot = token * kTopk + i, rank = slot % kRanks;
        terms.push_back({static_cast<std::int32_t>(rank), static_cast<std::int32_t>(slot), 1.0f, 0, 0});
        std::memcpy(expected[rank].rows.data() + slot * hidden, elements.data(), hidden);
        std::memcpy(expected[rank].scales.data() + slot * num_scales * 4, made.data(), num_scales * 4);
      }
    }

    std::vector<std::byte*> rows, row_scales;
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      rows.push_back(put_poison(num_slots * hidden));
      row_scales.push_back(put_poison(num_slots * num_scales * 4));
    }
    device::launch(device::QuantiseRows{.x = arena().put(x, nullptr, shift),
                                        .scales = scales.empty() ? nullptr : arena().put(scales),
                                        .rows = arena().put(rows),
                                        .row_scales = arena().put(row_scales),
                                        .terms = arena().put(terms),
                                        .num_tokens = static_cast<std::int64_t>(num_tokens),
                                        .topk = kTopk,
                                        .hidden = static_cast<std::int64_t>(hidden),
                                        .x_dtype = dtype,
                                        .stop = arena().put(std::vector<std::uint32_t>{0})},
                   nullptr);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Delivered actual{download(rows[rank], num_slots * hidden, nullptr),
                             download(row_scales[rank], num_slots * num_scales * 4, nullptr)};
      EXPECT_TRUE(actual == expected[rank]) << to_string(dtype) << " hidden " << hidden << " shift " << shift;
    }
  }

  template <class T>
  static std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }

 private:
  static Arena& arena() {
    static Arena shared(64 << 20);
    return shared;
  }
};

TEST_F(QuantiseRowsTest, AreThoseOfTheCpuForEverySizeAndType) {
  std::mt19937 random(1);
  for (const std::size_t hidden : {1, 3, 4, 8, 24, 127, 128, 136, 200, 1000, 2048, 7168, 8192, 8200, 20'001})
    for (const DType dtype : kFloatTypes)
      for (const unsigned odd_every : {0u, 1u, 200u}) {
        std::vector<std::byte> x;
        for (int token = 0; token < 7; ++token) {
          const GuardedBytes row = random_row(random, dtype, hidden, odd_every);
          x.insert(x.end(), row.data(), row.data() + hidden * size_of(dtype));
        }
        expect_as_on_the_cpu(x, dtype, hidden);
        expect_as_on_the_cpu(x, dtype, hidden, {}, size_of(dtype));
      }
}

TEST_F(QuantiseRowsTest, CopyRowsThatAreFp8Already) {
  std::mt19937 random(2);
  for (const std::size_t hidden : {1, 8, 24, 129, 2048, 8200}) {
    std::vector<std::byte> x(7 * hidden);
    for (std::byte& bits : x) bits = static_cast<std::byte>(random());
    std::vector<float> scales(7 * scales_per_row(hidden));
    for (float& scale : scales) scale = odd_value(random);
    expect_as_on_the_cpu(x, fp8_e4m3, hidden, scales);
    expect_as_on_the_cpu(x, fp8_e4m3, hidden, scales, 1);
  }
}

// 448 leads each block, so the factor is 1 and the quantised element is the narrowed one.
TEST_F(QuantiseRowsTest, NarrowEveryKindOfFloatAsTheScalarConversionDoes) {
  std::vector<float> values;
  for (const float value : every_narrowing_case()) {
    if (!(std::abs(value) <= 448.0f)) continue;
    if (values.size() % kScaleBlock == 0) values.push_back(448.0f);
    values.push_back(value);
  }
  constexpr std::size_t kHidden = 64 * kScaleBlock;
  values.insert(values.begin(), kHidden, 0.0f);  // the first token has no slot
  values.resize((values.size() + kHidden - 1) / kHidden * kHidden);
  expect_as_on_the_cpu(bytes_of(values), f32, kHidden);
}

}  // namespace
}  // namespace shunt::test
