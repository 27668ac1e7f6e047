// Compares experts that read unique rows and sum their results with the same computed on the host.
#include "kernels/cuda/mlp/unique_mlp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/cuda/mlp/small_experts.hpp"

namespace shunt::test {
namespace {

/// Random rows with one to topk experts each, and the maps of a `token_unique` plan.
struct UniqueRows {
  std::int32_t topk;
  std::vector<std::int32_t> offsets, counts, unique_of_expert_row, expert_rows, experts;
  std::vector<float> weights;

  UniqueRows(std::mt19937& random, std::int32_t num_rows, std::int32_t num_experts, std::int32_t most) : topk(most) {
    const auto cells = static_cast<std::size_t>(num_rows * topk);
    expert_rows.assign(cells, -1);
    experts.assign(cells, -1);
    weights.assign(cells, 0.0f);
    std::vector<std::vector<std::size_t>> cells_of(static_cast<std::size_t>(num_experts));
    std::vector<std::int32_t> all(static_cast<std::size_t>(num_experts));
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
      const auto count = 1 + random() % static_cast<unsigned>(std::min(topk, num_experts));
      std::shuffle(all.begin(), all.end(), random);
      std::vector<std::int32_t> mine(all.begin(), all.begin() + count);
      std::sort(mine.begin(), mine.end());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const std::size_t cell = row * static_cast<std::size_t>(topk) + i;
        experts[cell] = mine[i];
        weights[cell] = std::uniform_real_distribution<float>(0.1f, 1.0f)(random);
        cells_of[static_cast<std::size_t>(mine[i])].push_back(cell);
      }
    }
    for (const auto& of_expert : cells_of) {
      offsets.push_back(static_cast<std::int32_t>(unique_of_expert_row.size()));
      counts.push_back(static_cast<std::int32_t>(of_expert.size()));
      for (const std::size_t cell : of_expert) {
        expert_rows[cell] = static_cast<std::int32_t>(unique_of_expert_row.size());
        unique_of_expert_row.push_back(static_cast<std::int32_t>(cell) / topk);
      }
    }
    offsets.push_back(static_cast<std::int32_t>(unique_of_expert_row.size()));
  }

  [[nodiscard]] std::int32_t num_rows() const { return static_cast<std::int32_t>(experts.size()) / topk; }
  [[nodiscard]] std::int64_t num_expert_rows() const { return static_cast<std::int64_t>(unique_of_expert_row.size()); }

  [[nodiscard]] device::UniqueView upload_to(SmallExperts& memory) const {
    const std::int32_t rows = num_rows();
    const auto put = [&](const auto& values) { return memory.upload_as(std::span(values)); };
    return {memory.upload_as(std::span(&rows, 1)),
            put(offsets),
            put(counts),
            put(unique_of_expert_row),
            put(expert_rows),
            put(experts),
            put(weights),
            static_cast<std::int32_t>(counts.size()),
            topk};
  }

  [[nodiscard]] std::vector<float> expected(const SmallExperts& all, std::span<const float> x, std::int32_t row) const {
    std::vector<float> sum(static_cast<std::size_t>(all.hidden()));
    for (std::int32_t cell = row * topk; cell < (row + 1) * topk; ++cell) {
      const std::int32_t expert = experts[static_cast<std::size_t>(cell)];
      if (expert < 0) break;
      const std::vector<float> y = all.host(static_cast<std::size_t>(expert))
                                       .apply(x.subspan(static_cast<std::size_t>(row) * sum.size(), sum.size()));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights[static_cast<std::size_t>(cell)] * y[i];
    }
    for (float& value : sum) value = rounded_to(value, all.dtype());
    return sum;
  }
};

class UniqueMlpCase {
 public:
  UniqueMlpCase(std::uint32_t seed, DType dtype)
      : random_(seed),
        experts_(random_, dtype, 8 * static_cast<std::int64_t>(1 + random_() % 24),
                 8 * static_cast<std::int64_t>(1 + random_() % 24), static_cast<std::int32_t>(1 + random_() % 9)),
        rows_(random_, static_cast<std::int32_t>(1 + random_() % 700), experts_.count(),
              static_cast<std::int32_t>(1 + random_() % 5)),
        x_(experts_.random_rows(random_, rows_.num_rows())),
        device_x_(experts_.upload_values(x_)),
        view_(rows_.upload_to(experts_)) {}

  [[nodiscard]] device::UniqueMlpShape shape(std::int32_t num_chunks) const {
    return {experts_.dtype(), experts_.hidden(),       experts_.ffn(), experts_.count(),
            rows_.topk,       rows_.num_expert_rows(), num_chunks};
  }
  [[nodiscard]] device::UniqueView view() const { return view_; }

  /// The results for all rows, as bytes.
  std::vector<std::byte> run(const device::UniqueMlpShape& shape) {
    const device::UniqueMlp mlp(shape, experts_.weights(), nullptr);
    std::byte* const y = experts_.take_rows(rows_.num_rows());
    mlp.run(view_, device_x_, y);
    EXPECT_LE(mlp.tiles_needed(), mlp.tiles_per_chunk());
    return download(y, static_cast<std::size_t>(rows_.num_rows()) * experts_.row_bytes(), nullptr);
  }

  void expect_as_host(const std::vector<std::byte>& y) const {
    for (std::int32_t row = 0; row < rows_.num_rows(); row += std::max(rows_.num_rows() / 7, 1)) {
      const std::span bytes(y.data() + static_cast<std::size_t>(row) * experts_.row_bytes(), experts_.row_bytes());
      const double error = relative_error(widened(bytes, experts_.dtype()), rows_.expected(experts_, x_, row));
      ASSERT_LE(error, tolerance_of(experts_.dtype())) << "row " << row;
    }
  }

 private:
  std::mt19937 random_;
  SmallExperts experts_;
  UniqueRows rows_;
  std::vector<float> x_;
  std::byte* device_x_;
  device::UniqueView view_;
};

TEST(UniqueMlp, SumsTheExpertsResultsForEveryRow) {
  SHUNT_NEEDS_DEVICE();
  for (const DType dtype : {f32, bf16, f16})
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      UniqueMlpCase each(seed, dtype);
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << ", seed " << seed);
      ASSERT_NO_FATAL_FAILURE(each.expect_as_host(each.run(each.shape(static_cast<std::int32_t>(1 + seed)))));
    }
}

TEST(UniqueMlp, GivesTheSameBitsHoweverRowsAreDivided) {
  SHUNT_NEEDS_DEVICE();
  for (const DType dtype : {f32, bf16}) {
    UniqueMlpCase each(7, dtype);
    const std::vector<std::byte> whole = each.run(each.shape(1));
    for (const std::int32_t num_chunks : {2, 3, 5, 40})
      EXPECT_EQ(each.run(each.shape(num_chunks)), whole) << num_chunks;
    EXPECT_EQ(each.run(each.shape(1)), whole);
  }
}

TEST(UniqueMlp, NeedsNoMoreTilesThanWereCounted) {
  SHUNT_NEEDS_DEVICE();
  UniqueMlpCase each(8, bf16);
  for (const std::int32_t num_chunks : {1, 3, 10}) {
    device::UniqueMlpShape shape = each.shape(num_chunks);
    const std::vector<std::byte> roomy = each.run(shape);
    shape.tiles_per_chunk = device::count_tiles(shape, each.view(), nullptr);
    EXPECT_LE(shape.tiles_per_chunk, each.shape(num_chunks).mlp().num_tiles);
    EXPECT_EQ(each.run(shape), roomy);
  }
}

TEST(UniqueMlp, ReportsMoreRowsThanFit) {
  SHUNT_NEEDS_DEVICE();
  UniqueMlpCase each(9, bf16);
  device::UniqueMlpShape shape = each.shape(2);
  EXPECT_LE(device::count_tiles(shape, each.view(), nullptr), shape.mlp().num_tiles);
  shape.max_expert_rows /= 2;
  EXPECT_EQ(device::count_tiles(shape, each.view(), nullptr), std::numeric_limits<std::int32_t>::max());
}

}  // namespace
}  // namespace shunt::test
