#include "core/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shunt/error.hpp"

namespace shunt {
namespace {

TEST(ClusterDescription, IsCheckedKeyByKey) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      (void)Cluster::from_json("c.json", text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("{\n\"name\": }"), testing::HasSubstr("c.json:2: no JSON"));
  EXPECT_THAT(error_of("{}"), testing::HasSubstr("c.json: name: is missing"));
  EXPECT_THAT(error_of(R"({"name": "x", "device": "d", "nodes": 0})"),
              testing::HasSubstr("nodes: expected a whole number"));
  EXPECT_THROW((void)Cluster::load("a100x12"), Error);
  EXPECT_THROW((void)Cluster::load("nothing"), Error);
  EXPECT_EQ(Cluster::load("a100x4").ranks(), 4);
  EXPECT_EQ(Cluster::load("a100x64").nodes, 8);
}

}  // namespace
}  // namespace shunt
