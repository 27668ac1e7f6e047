#include "core/start_thread.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

namespace shunt::test {
namespace {

TEST(StartThread, FailureNamesTheThreadAndPossibleLimits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space";
#endif
  EXPECT_EXIT(
      {
        const rlimit none{};  // no address space for a stack
        setrlimit(RLIMIT_AS, &none);
        try {
          start_thread("the test's thread", [] {}).join();
        } catch (const Error& error) {
          const std::string text = error.what();
          const bool is_named = text.find("can't start the test's thread: ") == 0 && text.find("ulimit") != text.npos;
          _exit(error.code() == ErrorCode::system && is_named ? 0 : 2);
        }
        _exit(1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shunt::test
