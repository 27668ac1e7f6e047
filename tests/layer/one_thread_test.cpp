#include "layer/one_thread.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "layer/product.hpp"

namespace shunt::test {
namespace {

class OneThreadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!get_ || !set_) GTEST_SKIP() << "no OpenMP runtime in this process";
  }

  int (*get_)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set_)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
};

TEST_F(OneThreadTest, AffectsOnlyThisThreadAndOnlyDuringItsLifetime) {
  set_(3);
  {
    const OneThread one_thread;
    EXPECT_EQ(get_(), 1);
    std::thread([&] { EXPECT_NE(get_(), 3); }).join();  // a new thread has the process's default
  }
  EXPECT_EQ(get_(), 3);
}

TEST_F(OneThreadTest, AProductLeavesTheCallersNumberOfThreadsAsItWas) {
  if (Gemm::library().empty()) GTEST_SKIP() << "this build has neither oneDNN nor OpenBLAS";
  set_(5);
  const std::vector<float> x(64, 1.0f);
  std::vector<float> y(64);
  Product product(f32, 8, 8);
  product.load(reinterpret_cast<const std::byte*>(x.data()));
  product.run(reinterpret_cast<const std::byte*>(x.data()), reinterpret_cast<std::byte*>(y.data()), 8);
  EXPECT_EQ(y[63], 8.0f);
  EXPECT_EQ(get_(), 5);
}

}  // namespace
}  // namespace shunt::test
