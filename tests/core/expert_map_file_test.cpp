#include "shunt/expert_map_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "shunt/error.hpp"

namespace shunt {
namespace {

using testing::HasSubstr;

// The example in the header.
constexpr const char* kByHand = R"({"shunt_map": 1,
 "origin": "by hand",
 "experts": 4, "nodes": 1, "ranks_per_node": 2,
 "layers": [
  {"ranks": [
    [0, 1],
    [1, 2, 3]],
   "shares": [
    [1, 3],
    [1, 1, 1]]}],
 "hash": "4da24d1b89377c5f"}
)";

PlacedLayers two_layers() {
  return {.experts = 3,
          .nodes = 2,
          .ranks_per_node = 1,
          .layers = {ExpertMap::from_placement(3, {{2, 0}, {1}}),
                     ExpertMap::from_placement(3, {{}, {0, 1, 2}}, {{}, {7, 1, 65535}})},
          .origin = "a \"test\"\n"};
}

std::string error_of(const std::string& text) {
  try {
    (void)PlacedLayers::from_json("m.json", text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << text;
    return error.what();
  }
  return "accepted";
}

/// The error for two_layers() with every match of a pattern replaced.
std::string error_with(const std::string& pattern, const std::string& replacement) {
  const std::string text = two_layers().to_json();
  const std::string changed = std::regex_replace(text, std::regex(pattern), replacement);
  EXPECT_NE(text, changed) << pattern;
  return error_of(changed);
}

TEST(ExpertMapFile, KeepsWhatWasWritten) {
  const PlacedLayers written = two_layers();
  const PlacedLayers read = PlacedLayers::from_json("m.json", written.to_json());
  EXPECT_EQ(read.experts, 3);
  EXPECT_EQ(read.nodes, 2);
  EXPECT_EQ(read.ranks_per_node, 1);
  EXPECT_EQ(read.origin, written.origin);
  ASSERT_EQ(read.layers.size(), 2u);
  EXPECT_EQ(read.layers[0].hash(), written.layers[0].hash());
  EXPECT_EQ(read.layers[1].hash(), written.layers[1].hash());
}

TEST(ExpertMapFile, HasOneLinePerRank) {
  const PlacedLayers maps = PlacedLayers::from_json("m.json", kByHand);
  EXPECT_EQ(maps.layers[0].share(PhysicalId(1)), 3);
  EXPECT_EQ(maps.to_json(), kByHand);
}

TEST(ExpertMapFile, IsRefusedWhereverItIsCutOff) {
  const std::string text = two_layers().to_json();
  for (std::size_t size = 0; size + 1 < text.size(); ++size)  // the last character is a line feed
    EXPECT_THAT(error_of(text.substr(0, size)), HasSubstr("no JSON at byte")) << size;
  EXPECT_THAT(error_of(text + "{"), HasSubstr("no JSON at byte"));
}

TEST(ExpertMapFile, IsRefusedWithTheKeyThatIsWrong) {
  EXPECT_THAT(error_of("[]"), HasSubstr("m.json: expected an object"));
  EXPECT_THAT(error_of(R"({"nodes": [[0, 1]]})"), HasSubstr("m.json: no file of expert maps: shunt_map is missing"));
  EXPECT_THAT(error_with("map\": 1", "map\": 2"),
              HasSubstr("shunt_map: version 2 of the format; this release reads 1"));
  EXPECT_THAT(error_with("\"origin\"", "\"colour\""), HasSubstr("colour: means nothing here"));
  EXPECT_THAT(error_with("\"shares\"", "\"share\""), HasSubstr("layers[1].share: means nothing here"));
  EXPECT_THAT(error_with("\"nodes\": 2, ", ""), HasSubstr("nodes: is missing"));
  EXPECT_THAT(error_with("\"nodes\": 2", "\"nodes\": 3"), HasSubstr("layers[0].ranks: lists of 2 ranks, expected 3"));
  EXPECT_THAT(error_with("\"experts\": 3", "\"experts\": 0"), HasSubstr("experts: expected a whole number from 1"));
  EXPECT_THAT(error_with("\"experts\": 3", "\"experts\": 4"),
              HasSubstr("layers[0].ranks: expert map: expert 3 is on no"));
  EXPECT_THAT(error_with(R"(\[1\])", "7"), HasSubstr("layers[0].ranks[1]: expected a list"));
  EXPECT_THAT(error_with(R"(\[1\])", "[3]"), HasSubstr("layers[0].ranks[1][0]: expected an expert from 0 to 2"));
  EXPECT_THAT(error_with(R"(\[1\])", "[-1]"), HasSubstr("layers[0].ranks[1][0]: expected an expert"));
  EXPECT_THAT(error_with(R"(\[1\])", "[1.5]"), HasSubstr("layers[0].ranks[1][0]: expected an expert"));
  EXPECT_THAT(error_with(R"(\[1\])", "[99999999999999999999]"), HasSubstr("layers[0].ranks[1][0]: expected an expert"));
  EXPECT_THAT(error_with(R"(\[1\])", "[1, 1]"), HasSubstr("rank 1 lists expert 1 twice"));
  EXPECT_THAT(error_with(R"(\[1\])", "[]"), HasSubstr("expert 1 is on no rank"));
  EXPECT_THAT(error_with("65535", "65536"), HasSubstr("layers[1].shares[1][2]: expected a share from 1 to 65535"));
  EXPECT_THAT(error_with("7, 1, ", "0, 1, "), HasSubstr("layers[1].shares[1][0]: expected a share"));
  EXPECT_THAT(error_with("7, 1, ", "7, "), HasSubstr("rank 1 lists 3 experts, but 2 shares"));
  EXPECT_THAT(error_of(R"({"shunt_map": 1, "experts": 1, "nodes": 1, "ranks_per_node": 1, "layers": [], "hash": ""})"),
              HasSubstr("layers: expected at least one"));
}

TEST(ExpertMapFile, IsRefusedWhereItsHashIsAnother) {
  EXPECT_THAT(error_with("7, 1, ", "8, 1, "), HasSubstr("they were changed or damaged"));
  EXPECT_THAT(error_with(R"(\[0, 2\])", "[2]"), HasSubstr("expert 0 is on no rank"));
  EXPECT_THAT(error_with(R"(\[1\])", "[1, 2]"), HasSubstr("they were changed or damaged"));
  const std::string swapped = error_with(R"(\[0, 2\],\s*\[1\])", "[1],\n[0, 2]");
  EXPECT_THAT(swapped, HasSubstr("they were changed or damaged"));
  const std::regex hashes(R"re(hash: "([0-9a-f]{16})", but these maps have "([0-9a-f]{16})")re");
  EXPECT_TRUE(std::regex_search(swapped, hashes)) << swapped;
}

TEST(ExpertMapFile, IsNotWrittenForLayersThatDontMatch) {
  PlacedLayers maps = two_layers();
  maps.layers.push_back(ExpertMap::contiguous(4, 2));
  EXPECT_THROW((void)maps.to_json(), Error);
  maps.layers.back() = ExpertMap::contiguous(3, 3);
  EXPECT_THROW((void)maps.to_json(), Error);
  maps.layers.clear();
  EXPECT_THROW((void)maps.to_json(), Error);
}

class MapFileOnDisk : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("shunt-maps-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    path_ = folder_ / "map.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_, path_;
};

TEST_F(MapFileOnDisk, IsReadBack) {
  write_maps(path_, two_layers());
  EXPECT_EQ(read_maps(path_).to_json(), two_layers().to_json());
}

TEST_F(MapFileOnDisk, StaysAsItWasWhereAnotherCantBeWritten) {
  write_maps(path_, two_layers());
  PlacedLayers wrong = two_layers();
  wrong.experts = 5;
  EXPECT_THROW(write_maps(path_, wrong), Error);
  EXPECT_EQ(read_maps(path_).to_json(), two_layers().to_json());
  EXPECT_THROW(write_maps(folder_ / "nowhere" / "map.json", two_layers()), Error);
  std::filesystem::create_symlink(folder_ / "loop", folder_ / "loop");
  EXPECT_THROW(write_maps(folder_ / "loop", two_layers()), Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "nothing is left behind";
}

TEST_F(MapFileOnDisk, NamesFilesThatCantBeRead) {
  const auto message = [](const std::string& path) -> std::string {
    try {
      (void)read_maps(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(path_), HasSubstr("map.json: can't be opened: No such file"));
  EXPECT_THAT(message(folder_), HasSubstr("no regular file"));
  std::ofstream(path_) << "{\n\n\"shunt_map\" 1}";
  EXPECT_THAT(message(path_), HasSubstr("map.json:3: no JSON"));
  std::filesystem::resize_file(path_, (16u << 20) + 1);
  EXPECT_THAT(message(path_), HasSubstr("16777217 bytes, expected at most 16777216"));
}

}  // namespace
}  // namespace shunt
