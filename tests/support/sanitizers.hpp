// What a sanitizer can't do.
#pragma once

#include <gtest/gtest.h>

namespace shunt::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = false;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace shunt::test

/// For tests whose ranks are processes.
#define SKIP_UNDER_THREAD_SANITIZER()  \
  if (::shunt::test::kThreadSanitizer) \
  GTEST_SKIP() << "ThreadSanitizer sees one process only; the same protocol runs under it with ranks as threads"
