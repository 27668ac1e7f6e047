#include "support/spawn_recorder.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

namespace shunt::test {

SpawnEnd SpawnRecorder::spawn(std::int32_t num_ranks, const std::function<void(World&)>& body,
                              const Environment& environment) {
  num_ranks_ = num_ranks;
  *records_ = {};
  const auto recording = [&](World& world) {
    Record& record = (*records_)[world.rank().index()];
    try {
      body(world);
      record.has_failure = ::testing::Test::HasFailure();
    } catch (const Error& error) {
      record.has_failure = ::testing::Test::HasFailure();
      record.has_error = true;
      record.code = error.code();
      std::strncpy(record.text.data(), error.what(), record.text.size() - 1);
      throw;
    }
  };
  const auto start = std::chrono::steady_clock::now();
  SpawnEnd end;
  try {
    World::spawn(num_ranks, recording, {.kind = WorldKind::shm, .environment = environment});
  } catch (const Error& error) {
    end = {true, error.code(), error.what()};
  }
  for (std::int32_t rank = 0; rank < num_ranks; ++rank)
    EXPECT_FALSE((*records_)[static_cast<std::size_t>(rank)].has_failure) << "an expectation of rank " << rank;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "a fault is noticed in seconds";
  return end;
}

void SpawnRecorder::expect_all_received(RankId culprit, ErrorCode code, const std::vector<std::string>& words) const {
  for (std::int32_t rank = 0; rank < num_ranks_; ++rank) {
    if (RankId(rank) == culprit) continue;
    const Record& record = (*records_)[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(record.has_error) << "rank " << rank << " received no Error";
    EXPECT_EQ(to_string(record.code), to_string(code)) << "rank " << rank << ": " << record.text.data();
    EXPECT_THAT(record.text.data(), ::testing::HasSubstr(fmt::format("rank {}", culprit.value))) << "rank " << rank;
    for (const auto& word : words) EXPECT_THAT(record.text.data(), ::testing::HasSubstr(word)) << "rank " << rank;
  }
}

Environment hasty() {
  Environment environment;
  environment.liveness = std::chrono::milliseconds(300);
  environment.join = std::chrono::seconds(10);
  return environment;
}

}  // namespace shunt::test
