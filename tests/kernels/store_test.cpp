#include "kernels/store.hpp"

#include <gtest/gtest.h>

#include "kernels/thread_sanitizer.hpp"
#include "shunt/machine.hpp"

namespace shunt::test {
namespace {

TEST(Store, SmallWritesStayInTheCache) { EXPECT_EQ(choose_store(4096), Store::cached); }

TEST(Store, WritesBeyondTheCacheStreamExceptUnderThreadSanitizer) {
  const std::size_t beyond = 4 * Machine::detect().last_level_cache_bytes + 1;
  EXPECT_EQ(choose_store(beyond), kThreadSanitizer ? Store::cached : Store::streaming);
}

}  // namespace
}  // namespace shunt::test
