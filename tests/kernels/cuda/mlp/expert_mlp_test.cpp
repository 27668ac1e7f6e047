// Compares experts on a device with the same computed on the host.
#include "kernels/cuda/mlp/expert_mlp.hpp"

#include <gtest/gtest.h>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/stream.hpp"
#include "kernels/cuda/mlp/small_experts.hpp"
#include "kernels/cuda/mlp/tiles.hpp"

namespace shunt::test {
namespace {

using device::kTileRows;

/// Rows of every expert, in blocks that start at a tile.
struct Blocks {
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> offsets = {0};

  explicit Blocks(std::vector<std::int32_t> of_experts) : counts(std::move(of_experts)) {
    for (const std::int32_t count : counts)
      offsets.push_back(offsets.back() + static_cast<std::int32_t>(device::tiles_of(count)) * kTileRows);
  }
  [[nodiscard]] std::int64_t num_tiles() const { return offsets.back() / kTileRows; }
};

Blocks random_blocks(std::mt19937& random, std::int32_t num_experts) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(num_experts));
  for (std::int32_t& count : counts) count = random() % 3 == 0 ? 0 : static_cast<std::int32_t>(random() % 300);
  counts[random() % counts.size()] = 1;  // at least one row
  return Blocks(counts);
}

void expect_as_host(const SmallExperts& experts, const Blocks& blocks, std::span<const float> x, const std::byte* y) {
  const auto hidden = static_cast<std::size_t>(experts.hidden());
  for (std::size_t expert = 0; expert < blocks.counts.size(); ++expert) {
    const std::int32_t count = blocks.counts[expert];
    for (std::int32_t i = 0; i < count; i += std::max(count / 3, 1)) {  // the first, some between, about the last
      const auto row = static_cast<std::size_t>(blocks.offsets[expert] + i);
      const double error = relative_error(experts.download_row(y, static_cast<std::int64_t>(row)),
                                          experts.host(expert).apply(x.subspan(row * hidden, hidden)));
      ASSERT_LE(error, tolerance_of(experts.dtype())) << "row " << row << " of expert " << expert;
    }
  }
}

TEST(ExpertMlp, GivesEveryRowToItsExpertWhateverTheSizes) {
  SHUNT_NEEDS_DEVICE();
  std::mt19937 random(3);
  for (const DType dtype : {f32, bf16, f16})
    for (int round = 0; round < 6; ++round) {
      const auto multiple_of_8 = [&] { return 8 * static_cast<std::int64_t>(1 + random() % 24); };
      SmallExperts experts(random, dtype, multiple_of_8(), multiple_of_8(),
                           static_cast<std::int32_t>(1 + random() % 9));
      const Blocks blocks = random_blocks(random, experts.count());
      const std::int64_t spare = random() % 3;  // so that the bound is not reached
      const device::ExpertMlpShape shape{dtype, experts.hidden(), experts.ffn(), experts.count(),
                                         blocks.num_tiles() + spare};
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << ", hidden " << shape.hidden << ", ffn " << shape.ffn
                                        << ", " << shape.num_experts << " experts, " << shape.num_tiles << " tiles");
      const device::ExpertMlp mlp(shape, experts.weights(), nullptr);
      const std::vector<float> x = experts.random_rows(random, shape.num_tiles * kTileRows);
      const std::byte* const rows = experts.upload_values(x);
      std::byte* const y = experts.take_rows(shape.num_tiles * kTileRows);
      mlp.run(experts.upload_as(std::span<const std::int32_t>(blocks.offsets)), rows, y);
      ASSERT_NO_FATAL_FAILURE(expect_as_host(experts, blocks, x, y));
    }
}

TEST(ExpertMlp, IsReplayedWithOtherSizesInPlace) {
  SHUNT_NEEDS_DEVICE();
  std::mt19937 random(4);
  SmallExperts experts(random, bf16, 64, 48, 5);
  constexpr std::int64_t kTiles = 16;
  const std::shared_ptr<CUstream_st> own_stream = device::make_stream();
  const Stream stream = own_stream.get();
  const device::ExpertMlp mlp({bf16, 64, 48, 5, kTiles}, experts.weights(), stream);
  auto* const offsets = experts.upload_as(std::span<const std::int32_t>(std::vector<std::int32_t>(6)));
  std::byte* const rows = experts.take_rows(kTiles * kTileRows);
  const device::CapturedGraph graph(stream, [&] { mlp.run(offsets, rows, rows); });
  for (int round = 0; round < 5; ++round) {
    const Blocks blocks = random_blocks(random, experts.count());
    ASSERT_LE(blocks.num_tiles(), kTiles);
    const std::vector<float> x = experts.random_rows(random, kTiles * kTileRows);
    const auto bytes = static_cast<std::size_t>(kTiles * kTileRows) * experts.row_bytes();
    ASSERT_EQ(cudaMemcpy(rows, experts.upload_values(x), bytes, cudaMemcpyDeviceToDevice), cudaSuccess);
    upload(reinterpret_cast<std::byte*>(offsets), std::as_bytes(std::span(blocks.offsets)), stream);
    graph.replay();
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_NO_FATAL_FAILURE(expect_as_host(experts, blocks, x, rows));
  }
}

TEST(ExpertMlp, RefusesShapesThatItCantCompute) {
  const auto refuses = [](const device::ExpertMlpShape& shape) { EXPECT_THROW(shape.check(), Error); };
  const device::ExpertMlpShape good{bf16, 64, 48, 5, 3};
  EXPECT_NO_THROW(good.check());
  refuses({fp8_e4m3, 64, 48, 5, 3});
  refuses({bf16, 60, 48, 5, 3});
  refuses({bf16, 64, 47, 5, 3});
  refuses({bf16, 64, 48, 0, 3});
  refuses({bf16, 64, 48, 5, 0});
}

}  // namespace
}  // namespace shunt::test
