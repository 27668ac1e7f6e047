#include <gtest/gtest.h>

#include "support/hosts_of_threads.hpp"

namespace shunt::test {
namespace {

TEST(LinkWithPeer, NeedsUcx) { GTEST_SKIP() << why_no_hosts(); }

}  // namespace
}  // namespace shunt::test
