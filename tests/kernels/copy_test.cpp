#include "kernels/copy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "kernels/every_target.hpp"
#include "kernels/rows.hpp"

namespace shunt::test {
namespace {

TEST(Copy, WritesTheRowToEveryTargetAndNothingBesideIt) {
  on_every_target([] {
    EXPECT_TRUE(rc::check([] {
      std::mt19937 random(*rc::gen::arbitrary<unsigned>());
      const auto bytes = *rc::gen::oneOf(rc::gen::inRange<std::size_t>(0, 200), rc::gen::inRange<std::size_t>(0, 9000));
      GuardedBytes source(bytes, random());
      for (std::size_t i = 0; i < bytes; ++i) source.data()[i] = static_cast<std::byte>(random());

      std::vector<GuardedBytes> copies;
      for (auto n = *rc::gen::inRange(0, 5); n > 0; --n) copies.emplace_back(bytes, random());
      std::vector<std::byte*> targets;
      for (GuardedBytes& copy : copies) targets.push_back(copy.data());

      copy_row(source.data(), bytes, targets, *rc::gen::element(Store::cached, Store::streaming));
      flush_streaming();
      for (const GuardedBytes& copy : copies) {
        RC_ASSERT(bytes == 0 || std::memcmp(copy.data(), source.data(), bytes) == 0);
        RC_ASSERT(copy.guards_intact());
      }
    }));
  });
}

}  // namespace
}  // namespace shunt::test
