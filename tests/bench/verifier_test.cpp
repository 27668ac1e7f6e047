// Systems with one error each, which the verifier must find.
#include "bench/verifier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "bench/shuffle/systems.hpp"
#include "shunt/error.hpp"

namespace shunt::bench {
namespace {

using ::testing::HasSubstr;

/// A copy of a system's output, which a test alters.
struct Output {
  std::vector<std::byte> rows;
  std::size_t row_bytes;
  std::vector<float> scales;
  std::vector<std::int64_t> row_counts;

  [[nodiscard]] std::size_t num_rows() const { return rows.size() / row_bytes; }
  [[nodiscard]] auto row(std::size_t i) { return rows.begin() + static_cast<std::ptrdiff_t>(i * row_bytes); }
  void drop_row(std::size_t i) { rows.erase(row(i), row(i + 1)); }
  void repeat_row(std::size_t i) {
    const std::vector<std::byte> copy(row(i), row(i + 1));
    rows.insert(row(i), copy.begin(), copy.end());
  }
};

/// shunt, with its outputs altered by a test.
class Altered final : public System {
 public:
  using Alter = std::function<void(Output&)>;

  Altered(
      ShuntSystem& right, Alter delivered, Alter combined = [](Output&) {})
      : right_(right), delivered_(std::move(delivered)), combined_(std::move(combined)) {}

  [[nodiscard]] std::string name() const override { return "altered"; }
  [[nodiscard]] ShuffleKind kind() const override { return right_.kind(); }
  void plan() override { right_.plan(); }
  ConstTensor dispatch() override {
    const ConstTensor rows = right_.dispatch();
    const auto scales = right_.scales();
    return alter({bytes_of(rows), rows.row_bytes(), {scales.begin(), scales.end()}, right_.row_counts()}, rows,
                 delivered_);
  }
  [[nodiscard]] std::span<const float> scales() const override { return output_.scales; }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override { return output_.row_counts; }
  Tensor expert_out() override { return right_.expert_out(); }
  ConstTensor combine() override {
    const ConstTensor result = right_.combine();
    return alter({bytes_of(result), result.row_bytes(), {}, {}}, result, combined_);
  }
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t, std::uint64_t) const override { return 0; }

 private:
  static std::vector<std::byte> bytes_of(const ConstTensor& rows) { return {rows.data, rows.data + rows.bytes()}; }
  ConstTensor alter(Output output, const ConstTensor& rows, const Alter& change) {
    output_ = std::move(output);
    change(output_);
    return borrow(static_cast<const void*>(output_.rows.data()), rows.dtype,
                  static_cast<std::int64_t>(output_.num_rows()), rows.cols);
  }

  ShuntSystem& right_;
  Alter delivered_, combined_;
  Output output_{};
};

ShuffleConfig small(Layout layout, DType dtype) {
  ShuffleConfig config;
  config.ranks = 2;
  config.tokens = 24;
  config.hidden = 136;  // two blocks of fp8
  config.experts = 6;
  config.topk = 3;
  config.dtype = dtype;
  config.layout = layout;
  return config;
}

/// The verifier's error for shunt's output, altered on every rank; empty: no error.
std::string verdict(
    const ShuffleConfig& config, const Altered::Alter& delivered, const Altered::Alter& combined = [](Output&) {}) {
  std::string message;
  const auto run = [&](World& world) {
    const Workload workload(config);
    const Tensor tokens = workload.tokens(world.rank().index());
    ShuntSystem shunt(world, config, workload, tokens, Forwarders::balanced);
    Altered system(shunt, delivered, combined);
    try {
      verify("altered", system, Verifier(config, workload, world.rank().index(), system.kind()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal);
      if (world.rank().value == 0) message = error.what();
    }
    world.barrier();
  };
  World::spawn(config.ranks, run, {.topology = config.topology()});
  return message;
}

void unchanged(Output&) {}

TEST(Verifier, AcceptsShuntsOutput) {
  for (const Layout layout : {Layout::expert_major, Layout::token_unique, Layout::padded})
    for (const DType dtype : {f32, bf16, f16, fp8_e4m3}) EXPECT_EQ(verdict(small(layout, dtype), unchanged), "");
}

TEST(Verifier, AcceptsVirtualNodesAndExpertsWithCopies) {
  ShuffleConfig config = small(Layout::expert_major, bf16);
  config.ranks = 4;
  config.nodes = 2;
  config.placed = ExpertMap::from_placement(6, {{0, 1}, {2, 3}, {0, 4}, {2, 5}});
  EXPECT_EQ(verdict(config, unchanged), "");
  config.layout = Layout::token_unique;
  EXPECT_EQ(verdict(config, unchanged), "");
}

// All other rows are right, so contents alone don't show the error.
TEST(Verifier, FindsAMissingLastRow) {
  const auto alter = [](Output& output) {
    output.drop_row(output.num_rows() - 1);
    --output.row_counts.back();
  };
  EXPECT_THAT(verdict(small(Layout::expert_major, bf16), alter), HasSubstr("row count 2 is"));
}

TEST(Verifier, FindsAnExtraRow) {
  const auto alter = [](Output& output) {
    output.repeat_row(output.num_rows() - 1);
    ++output.row_counts.back();
  };
  EXPECT_THAT(verdict(small(Layout::expert_major, bf16), alter), HasSubstr("row count 2 is"));
}

TEST(Verifier, FindsARowThatIsInNoCount) {
  const auto alter = [](Output& output) { output.repeat_row(output.num_rows() - 1); };
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    EXPECT_THAT(verdict(small(layout, bf16), alter), HasSubstr("rows received, expected"));
}

// The rows are right, only their assignment to experts is wrong.
TEST(Verifier, FindsARowCountedForTheWrongExpert) {
  const auto alter = [](Output& output) {
    --output.row_counts.at(0);
    ++output.row_counts.at(1);
  };
  for (const Layout layout : {Layout::expert_major, Layout::token_unique, Layout::padded})
    EXPECT_THAT(verdict(small(layout, bf16), alter), HasSubstr("row count 0 is"));
}

TEST(Verifier, FindsARowAtTheWrongExpert) {
  const auto alter = [](Output& output) {
    const auto of_second_expert = static_cast<std::size_t>(output.row_counts.at(0));
    std::swap_ranges(output.row(0), output.row(1), output.row(of_second_expert));
  };
  EXPECT_THAT(verdict(small(Layout::expert_major, bf16), alter), HasSubstr("row 0 is not token"));
}

TEST(Verifier, FindsMissingCountsOfASource) {
  const auto alter = [](Output& output) { output.row_counts.pop_back(); };
  EXPECT_THAT(verdict(small(Layout::padded, bf16), alter), HasSubstr("5 row counts, expected 6"));
}

TEST(Verifier, FindsTheSmallestErrorOfAnFp8Element) {
  const auto alter = [](Output& output) { output.rows[100] ^= std::byte{1}; };
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    EXPECT_THAT(verdict(small(layout, fp8_e4m3), alter), HasSubstr("row 0 is not token"));
}

TEST(Verifier, FindsTheSmallestErrorOfAnFp8Scale) {
  const auto alter = [](Output& output) { output.scales[1] = std::nextafter(output.scales[1], 1.0f); };
  EXPECT_THAT(verdict(small(Layout::expert_major, fp8_e4m3), alter), HasSubstr("row 0 is not token"));
}

TEST(Verifier, FindsMissingScales) {
  const auto alter = [](Output& output) { output.scales.resize(output.scales.size() - 1); };
  EXPECT_THAT(verdict(small(Layout::expert_major, fp8_e4m3), alter), HasSubstr("is not token"));
}

TEST(Verifier, FindsTheSmallestErrorOfASum) {
  const auto alter = [](Output& output) { output.rows[0] ^= std::byte{1}; };
  for (const DType dtype : {f32, bf16, fp8_e4m3})
    EXPECT_THAT(verdict(small(Layout::expert_major, dtype), unchanged, alter), HasSubstr("token 0, element 0 is"));
}

TEST(Verifier, FindsAMissingResult) {
  const auto alter = [](Output& output) { output.drop_row(output.num_rows() - 1); };
  EXPECT_THAT(verdict(small(Layout::expert_major, bf16), unchanged, alter), HasSubstr("the result is bf16 [23, 136]"));
}

}  // namespace
}  // namespace shunt::bench
