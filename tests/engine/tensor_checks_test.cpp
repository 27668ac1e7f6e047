// What engines demand of tensors; engines on host memory are asked in bad_input_test.cpp.
#include "engine/tensor_checks.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/require_error.hpp"

namespace shunt::test {
namespace {

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kHidden = 130;  // two scales per row

class TensorChecksTest : public ::testing::Test {
 protected:
  ConstTensor tensor(DType dtype, std::int64_t rows, std::int64_t cols, std::size_t shift = 0) const {
    return borrow(static_cast<const void*>(memory_.data() + shift), dtype, rows, cols);
  }
  template <class Call>
  static void refuses(const Call& call, const char* why) {
    EXPECT_NO_THROW(require_error(call, ErrorCode::invalid_argument, why));
  }

  static constexpr TensorChecks kHost{RankId(1), fp8_e4m3, kHidden, false};
  static constexpr TensorChecks kDevice{RankId(1), fp8_e4m3, kHidden, true};
  static constexpr TensorChecks kWithoutScales{RankId(1), bf16, kHidden, true};

 private:
  alignas(16) std::array<std::byte, 4096> memory_{};
};

TEST_F(TensorChecksTest, DevicesNeedAlignedElementsAndHostsDoNot) {
  const ConstTensor shifted = tensor(f32, kRows, kHidden, 2);
  EXPECT_NO_THROW(kHost.tensor("combine", "out", shifted, f32, kRows, kHidden));
  refuses([&] { kDevice.tensor("combine", "out", shifted, f32, kRows, kHidden); },
          "rank 1: combine: out is not aligned to its elements");
  const ConstTensor x = tensor(fp8_e4m3, kRows, kHidden);
  const ConstTensor scales = tensor(f32, kRows, 2, 1);
  EXPECT_NO_THROW(kHost.dispatch_input("dispatch", kRows, x, scales));
  refuses([&] { kDevice.dispatch_input("dispatch", kRows, x, scales); },
          "needs f32 scales [3, 2], got misaligned f32 [3, 2]");
}

TEST_F(TensorChecksTest, Fp8RowsAreMadeOfWiderTokensOrComeWithTheirScales) {
  EXPECT_NO_THROW(kDevice.dispatch_input("dispatch", kRows, tensor(bf16, kRows, kHidden), {}));
  EXPECT_NO_THROW(kDevice.dispatch_input("dispatch", kRows, tensor(fp8_e4m3, kRows, kHidden), tensor(f32, kRows, 2)));
  EXPECT_NO_THROW(kDevice.dispatch_input("dispatch", 0, ConstTensor(tensor(fp8_e4m3, 0, kHidden)), {}));
  refuses([&] { kDevice.dispatch_input("dispatch", kRows, tensor(fp8_e4m3, kRows, kHidden), {}); },
          "fp8 x needs f32 scales");
  refuses([&] { kDevice.dispatch_input("dispatch", kRows, tensor(f16, kRows, kHidden), tensor(f32, kRows, 2)); },
          "scales given, but x is f16");
  refuses([&] { kWithoutScales.dispatch_input("dispatch", kRows, tensor(f16, kRows, kHidden), {}); },
          "x is f16, expected bf16");
}

TEST_F(TensorChecksTest, OutputsForScalesMayBeLeftOutAndFitFp8RowsOnly) {
  EXPECT_NO_THROW(kDevice.out_scales("dispatch", {}, kRows));
  EXPECT_NO_THROW(kDevice.out_scales("dispatch", tensor(f32, kRows, 2), kRows));
  EXPECT_NO_THROW(kWithoutScales.out_scales("dispatch", {}, kRows));
  refuses([&] { kDevice.out_scales("dispatch", tensor(f32, kRows, 1), kRows); },
          "out_scales is [3, 1], expected [3, 2]");
  refuses([&] { kWithoutScales.out_scales("dispatch", tensor(f32, kRows, 2), kRows); },
          "out_scales given, but rows are bf16");
}

}  // namespace
}  // namespace shunt::test
