#include "support/survivors.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

namespace shunt::test {

SpawnEnd Survivors::spawn(std::int32_t num_ranks, const std::function<void(World&)>& body,
                          const Environment& environment) {
  num_ranks_ = num_ranks;
  *notes_ = {};
  const auto noting = [&](World& world) {
    Note& note = (*notes_)[world.rank().index()];
    try {
      body(world);
      note.has_failure = ::testing::Test::HasFailure();
    } catch (const Error& error) {
      note.has_failure = ::testing::Test::HasFailure();
      note.told = true;
      note.code = error.code();
      std::strncpy(note.text.data(), error.what(), note.text.size() - 1);
      throw;
    }
  };
  const auto start = std::chrono::steady_clock::now();
  SpawnEnd end;
  try {
    World::spawn(num_ranks, noting, {.kind = WorldKind::shm, .environment = environment});
  } catch (const Error& error) {
    end = {true, error.code(), error.what()};
  }
  for (std::int32_t rank = 0; rank < num_ranks; ++rank)
    EXPECT_FALSE((*notes_)[static_cast<std::size_t>(rank)].has_failure) << "an expectation of rank " << rank;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "a fault is noticed in seconds";
  return end;
}

void Survivors::expect_all_were_told(RankId culprit, ErrorCode code, const std::vector<std::string>& words) const {
  for (std::int32_t rank = 0; rank < num_ranks_; ++rank) {
    if (RankId(rank) == culprit) continue;
    const Note& note = (*notes_)[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(note.told) << "rank " << rank << " was told nothing";
    EXPECT_EQ(to_string(note.code), to_string(code)) << "rank " << rank << ": " << note.text.data();
    EXPECT_THAT(note.text.data(), ::testing::HasSubstr(fmt::format("rank {}", culprit.value))) << "rank " << rank;
    for (const auto& word : words) EXPECT_THAT(note.text.data(), ::testing::HasSubstr(word)) << "rank " << rank;
  }
}

Environment hasty() {
  Environment environment;
  environment.liveness = std::chrono::milliseconds(300);
  environment.join = std::chrono::seconds(10);
  return environment;
}

}  // namespace shunt::test
