// Compares kernels for few multiprocessors with the plain ones, on rows that exceed any cache: kernels must wait for
// rows in flight, and small cases don't show whether they do.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "support/cuda/device.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kTokens = 1500;
constexpr std::int32_t kTopk = 8;
constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kHidden = 7168;
constexpr std::size_t kRowBytes = kHidden * 2;
constexpr std::int32_t kSlots = kTokens * kTopk / kRanks;  // per rank

class FewSmsTest : public ::testing::TestWithParam<std::int32_t> {
 protected:
  void SetUp() override {
    SHUNT_NEEDS_DEVICE();
    if (!device::has_bulk_copies()) GTEST_SKIP() << "a device without bulk copies";
    device::preload_bulk_copy_rows();
    device::preload_pipelined_reduce_rows();
    arena_ = std::make_unique<Arena>(std::size_t{2} << 30);
    stop_ = arena_->put(std::vector<std::uint32_t>{0});
    draw_terms();
  }

  /// Every slot of every rank belongs to a token; a sum's terms are in rank order.
  void draw_terms() {
    std::vector<std::int32_t> slots(kRanks * kSlots);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), generator_);
    for (std::int32_t token = 0; token < kTokens; ++token) {
      const auto begin = slots.begin() + token * kTopk;
      std::sort(begin, begin + kTopk);
      for (std::int32_t i = 0; i < kTopk; ++i) {
        const std::int32_t rank = begin[i] / kSlots;
        const bool ends_rank = i + 1 == kTopk || begin[i + 1] / kSlots != rank;
        const auto closes = i + 1 == kTopk ? device::Closes::node
                            : ends_rank    ? device::Closes::rank
                                           : device::Closes::nothing;
        terms_.push_back({rank, begin[i] % kSlots, 0.1f * static_cast<float>(i + 1), static_cast<std::int16_t>(i),
                          static_cast<std::int16_t>(closes)});
        segments_.push_back({token, rank, begin[i] % kSlots, 1.0f});
      }
    }
  }

  std::byte* put_poison(std::size_t bytes) {
    std::byte* const place = arena_->take(bytes);
    poison(place, bytes, nullptr);
    return place;
  }
  /// Finite bf16 values of both signs.
  std::byte* put_random_rows(std::size_t rows) {
    std::vector<std::uint16_t> bits(rows * kHidden);
    std::minstd_rand random(7);
    for (auto& element : bits) element = static_cast<std::uint16_t>((random() & 0x83ffu) | 0x3c00u);
    return reinterpret_cast<std::byte*>(arena_->put(bits));
  }
  std::byte** put_bases(std::byte* rows) {
    std::vector<std::byte*> bases;
    for (std::int32_t rank = 0; rank < kRanks; ++rank) bases.push_back(rows + rank * (kSlots * kRowBytes));
    return arena_->put(bases);
  }

  std::mt19937 generator_{3};
  std::unique_ptr<Arena> arena_;
  const std::uint32_t* stop_ = nullptr;
  std::vector<device::Term> terms_;
  std::vector<device::Segment> segments_;
};

TEST_P(FewSmsTest, CopyRowsAsThePlainKernelDoes) {
  const std::byte* const x = put_random_rows(kTokens);
  constexpr std::size_t kBytes = kRanks * kSlots * kRowBytes;
  std::byte* const plain = put_poison(kBytes);
  std::byte* const few = put_poison(kBytes);
  device::launch(device::CopyRows{.x = x,
                                  .out = put_bases(plain),
                                  .segments = arena_->put(segments_),
                                  .num_segments = kTokens * kTopk,
                                  .row_bytes = kRowBytes,
                                  .stop = stop_},
                 nullptr);
  device::launch(device::BulkCopyRows{.x = x,
                                      .out = put_bases(few),
                                      .terms = arena_->put(terms_),
                                      .num_tokens = kTokens,
                                      .topk = kTopk,
                                      .row_bytes = kRowBytes,
                                      .stop = stop_},
                 GetParam(), nullptr);
  EXPECT_TRUE(download(few, kBytes, nullptr) == download(plain, kBytes, nullptr));
}

TEST_P(FewSmsTest, SumRowsAsThePlainKernelDoes) {
  constexpr std::size_t kBytes = kTokens * kRowBytes;
  device::ReduceRows reduce{.rows = put_bases(put_random_rows(kRanks * kSlots)),
                            .result = put_poison(kBytes),
                            .terms = arena_->put(terms_),
                            .num_tokens = kTokens,
                            .topk = kTopk,
                            .hidden = kHidden,
                            .row_dtype = bf16,
                            .wire_dtype = bf16,
                            .result_dtype = bf16,
                            .weighted = true,
                            .stop = stop_};
  device::launch(reduce, nullptr);
  const auto plain = download(reduce.result, kBytes, nullptr);
  poison(reduce.result, kBytes, nullptr);
  device::launch_pipelined(reduce, GetParam(), nullptr);
  EXPECT_TRUE(download(reduce.result, kBytes, nullptr) == plain);
}

INSTANTIATE_TEST_SUITE_P(Counts, FewSmsTest, ::testing::Values(1, 20, 132));

}  // namespace
}  // namespace shunt::test
