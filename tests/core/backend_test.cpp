// Libraries that are loaded at first use: errors if they are missing, and signal handlers that they must not change.
#include "core/backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "core/kept_signals.hpp"
#include "shunt/error.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

struct Nothing {};

TEST(Backend, AMissingLibraryIsAnErrorThatNamesItAndSaysWhatToDo) {
  EXPECT_EQ(load_backend("nonesuch").functions, nullptr);
  try {
    (void)require_backend<Nothing>("nonesuch");
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("can't find libshunt_nonesuch.so"));
    EXPECT_THAT(error.what(), HasSubstr("it comes with builds of shunt that found nonesuch"));
  }
}

void ignore(int) {}

TEST(KeptSignals, RestoreTheHandlers) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &before), 0);
  {
    const KeptSignals kept;
    signal(SIGHUP, ignore);
  }
  struct sigaction after {};
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

}  // namespace
}  // namespace shunt::test
