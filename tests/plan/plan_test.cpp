#include "shunt/plan.hpp"

#include <gtest/gtest.h>

#include "shunt/error.hpp"

namespace shunt {
namespace {

TEST(Layout, NamesRoundTrip) {
  for (const Layout layout : {Layout::expert_major, Layout::token_unique, Layout::padded})
    EXPECT_EQ(parse_layout(to_string(layout)), layout);
}

TEST(Layout, UnknownNameIsRefused) { EXPECT_THROW(parse_layout("row_major"), Error); }

TEST(Plan, EmptyHandleThrowsInsteadOfCrashing) { EXPECT_THROW((void)Plan().num_rows(), Error); }

}  // namespace
}  // namespace shunt
