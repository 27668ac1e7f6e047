// Kernels after a fault: they follow no pointers of a failed plan, and write nothing.
#include <gtest/gtest.h>

#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/scale_rows.hpp"
#include "support/cuda/device.hpp"

namespace shunt::test {
namespace {

constexpr std::int64_t kTokens = 40;
constexpr std::int64_t kHidden = 256;
constexpr std::size_t kBytes = kTokens * kHidden * 2;
constexpr int kUntouched = 0x11;

/// All bytes of the lists, including the ranks' pointers, have one value.
class StoppedKernels : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    SHUNT_NEEDS_DEVICE();
    arena_ = std::make_unique<Arena>(std::size_t{1} << 20);
    const std::uint32_t set = 1;
    std::byte* const stop = arena_->take(sizeof(set));
    upload(stop, std::as_bytes(std::span(&set, 1)), nullptr);
    stop_ = reinterpret_cast<const std::uint32_t*>(stop);
    x_ = fill(kBytes, kUntouched);
    result_ = fill(kBytes, kUntouched);
    anything_ = fill(kTokens * Routing::kMaxTopK * sizeof(device::Term), GetParam());
  }

  std::byte* fill(std::size_t bytes, int pattern) {
    std::byte* const place = arena_->take(bytes);
    poison(place, bytes, nullptr, pattern);
    return place;
  }
  template <class T>
  T* anything() const {
    return reinterpret_cast<T*>(anything_);
  }
  void expect_untouched() const {
    for (const std::byte byte : download(result_, kBytes, nullptr)) ASSERT_EQ(byte, std::byte{kUntouched});
  }
  [[nodiscard]] device::ReduceRows reduction(std::int32_t topk) const {
    return {.rows = anything<const std::byte*>(),
            .result = result_,
            .terms = anything<device::Term>(),
            .num_tokens = kTokens,
            .topk = topk,
            .hidden = kHidden,
            .row_dtype = bf16,
            .wire_dtype = bf16,
            .result_dtype = bf16,
            .weighted = true,
            .stop = stop_};
  }

  std::unique_ptr<Arena> arena_;
  const std::uint32_t* stop_ = nullptr;
  std::byte* x_ = nullptr;
  std::byte* result_ = nullptr;
  std::byte* anything_ = nullptr;
};

TEST_P(StoppedKernels, SumNothing) {
  for (const std::int32_t topk : {1, 2, 4, 8, 20}) device::launch(reduction(topk), nullptr);
  expect_untouched();
}

TEST_P(StoppedKernels, DoNothingOnFewMultiprocessors) {
  if (!device::has_bulk_copies()) GTEST_SKIP() << "a device without bulk copies";
  device::preload_bulk_copy_rows();
  device::preload_pipelined_reduce_rows();
  device::launch_pipelined(reduction(8), 2, nullptr);
  device::launch(device::BulkCopyRows{.x = x_,
                                      .out = anything<std::byte*>(),
                                      .terms = anything<device::Term>(),
                                      .num_tokens = kTokens,
                                      .topk = 8,
                                      .row_bytes = kHidden * 2,
                                      .stop = stop_},
                 2, nullptr);
  expect_untouched();
}

TEST_P(StoppedKernels, SendNothing) {
  constexpr std::int32_t kTopk = 4;
  device::launch(device::CopyRows{.x = x_,
                                  .out = anything<std::byte*>(),
                                  .segments = anything<device::Segment>(),
                                  .num_segments = kTokens * kTopk,
                                  .row_bytes = kHidden * 2,
                                  .stop = stop_},
                 nullptr);
  device::launch(device::ScaleRows{.x = x_,
                                   .out = anything<std::byte*>(),
                                   .segments = anything<device::Segment>(),
                                   .num_segments = kTokens * kTopk,
                                   .hidden = kHidden,
                                   .x_dtype = bf16,
                                   .out_dtype = bf16,
                                   .stop = stop_},
                 nullptr);
  device::launch(device::QuantiseRows{.x = x_,
                                      .scales = nullptr,
                                      .rows = anything<std::byte*>(),
                                      .row_scales = anything<std::byte*>(),
                                      .terms = anything<device::Term>(),
                                      .num_tokens = kTokens,
                                      .topk = kTopk,
                                      .hidden = kHidden,
                                      .x_dtype = bf16,
                                      .stop = stop_},
                 nullptr);
  device::launch(device::DotRows{.x = x_,
                                 .rows = anything<std::byte*>(),
                                 .terms = anything<device::Term>(),
                                 .result = reinterpret_cast<float*>(result_),
                                 .num_tokens = kTokens,
                                 .topk = kTopk,
                                 .hidden = kHidden,
                                 .x_dtype = bf16,
                                 .row_dtype = bf16,
                                 .stop = stop_},
                 nullptr);
  expect_untouched();
}

// As rank indices, one pattern is far too large and the other negative.
INSTANTIATE_TEST_SUITE_P(Patterns, StoppedKernels, ::testing::Values(0x3f, 0xa5));

}  // namespace
}  // namespace shunt::test
