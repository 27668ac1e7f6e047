// An authenticated far rank that breaks the engine's protocol: it is named, and what it sends finds no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shunt/engine.hpp"
#include "support/rogue_peer.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

struct Violation {
  std::string name;
  std::function<void(RoguePeer&)> act;
  std::string error;  // a part of its text
};

void PrintTo(const Violation& violation, std::ostream* out) { *out << violation.name; }

class RogueRank : public ::testing::TestWithParam<Violation> {};

TEST_P(RogueRank, IsNamedInABarrier) {
  EXPECT_THAT(error_against([](World& world) { world.barrier(); }, GetParam().act), HasSubstr(GetParam().error));
}

constexpr auto kName = [](const auto& info) { return info.param.name; };

Violation of_grants(const std::string& name, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& grants,
                    const std::string& error) {
  const auto act = [grants](RoguePeer& peer) {
    for (const auto& [num_slices, bytes_each] : grants) peer.grant(num_slices, bytes_each);
  };
  return {name, act, "rank 1 granted rank 0 room for " + error};
}

constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;

// Room is given back slice by slice: a second grant has to answer a slice that was read and was not the last.
INSTANTIATE_TEST_SUITE_P(Grants, RogueRank,
                         ::testing::Values(of_grants("OfNothing", {{0, 1024}}, "0 slices of 1024 bytes"),
                                           of_grants("OfNoBytes", {{1, 0}}, "1 slices of 0 bytes"),
                                           of_grants("OfTooManySlices", {{kHuge, 1024}}, "1099511627776 slices"),
                                           of_grants("OfTooManyBytes", {{1, kHuge}}, "1 slices of 1099511627776 bytes"),
                                           of_grants("OfAnotherSize", {{1, 1024}, {1, 2048}}, "1 slices of 2048 bytes"),
                                           of_grants("ForUnsentSlices", {{4, 1024}, {2, 1024}},
                                                     "2 slices of 1024 bytes"),
                                           Violation{"BeyondTheLastSlice",
                                                     [](RoguePeer& peer) {
                                                       peer.grant(4);
                                                       EXPECT_TRUE(peer.await_slice().tag.is_last);
                                                       peer.grant(1);
                                                     },
                                                     "rank 1 granted rank 0 room for 1 slices of 1024 bytes"}),
                         kName);

Violation of_signal(const std::string& name, Signal signal) {
  const auto act = [signal](RoguePeer& peer) {
    peer.signal.signal = signal;
    peer.send_signal();
  };
  return {name, act, "rank 1 sent rank 0 signal"};
}

INSTANTIATE_TEST_SUITE_P(
    Signals, RogueRank,
    ::testing::Values(of_signal("OfNearRanksAnnounce", Signal::announce), of_signal("OfNearRanksDone", Signal::done),
                      of_signal("Unknown", static_cast<Signal>(9)),
                      Violation{"CutOff", [](RoguePeer& peer) { peer.send_signal(8); },
                                "rank 1 sent rank 0 a message of 8 bytes"},
                      Violation{"OfTooManyUnknownOperations",
                                [](RoguePeer& peer) {
                                  peer.signal.engine = 12345;
                                  for (std::int32_t i = 0; i <= OperationTable::kMostKept; ++i, ++peer.signal.sequence)
                                    peer.send_signal();
                                },
                                "rank 1 signalled to rank 0 more than 8192 operations that are not in progress there"}),
    kName);

struct Sent {
  std::size_t bytes;
  std::uint32_t index;
  bool is_last;
};

/// Sends slices after rank 0 has granted four of 128 KiB for the barrier.
Violation of_slices(const std::string& name, const std::vector<Sent>& slices, const std::string& error) {
  const auto act = [slices](RoguePeer& peer) {
    peer.grant(1);
    EXPECT_EQ(peer.receive_signal().offset, 4u);
    for (const Sent& slice : slices) peer.send_slice(slice.bytes, slice.index, slice.is_last);
  };
  return {name, act, "rank 1 sent rank 0 " + error};
}

INSTANTIATE_TEST_SUITE_P(
    Slices, RogueRank,
    ::testing::Values(of_slices("BeyondTheGrant", {{0, 4, true}}, "slice #4"),
                      of_slices("TooLarge", {{(128 << 10) + 1, 0, true}},
                                "slice #0 of 131073 bytes, which was not granted"),
                      of_slices("Twice", {{0, 1, false}, {0, 1, false}}, "slice #1"),
                      of_slices("TwoLast", {{0, 2, true}, {0, 1, true}}, "slice #1"),
                      of_slices("LastBeforeOthers", {{0, 2, false}, {0, 1, true}}, "slice #1"),
                      of_slices("WithBytesForABarrier", {{1, 0, true}}, "more than the 0 bytes that barrier #0 allows"),
                      Violation{"OfNoOperation",
                                [](RoguePeer& peer) {
                                  peer.signal.sequence = 77;
                                  peer.send_slice(0);
                                },
                                "rank 1 sent rank 0 a slice of an operation that is not under way"}),
    kName);

TEST(RoguePeer, IsNamedForASliceAfterTheLastOperationEnded) {
  EXPECT_THAT(error_against(
                  [](World& world) {
                    for (;;) world.barrier();
                  },
                  [](RoguePeer& peer) {
                    peer.grant(1);
                    peer.receive_signal();
                    peer.send_slice(0);
                    EXPECT_EQ(peer.receive_signal().sequence, 2u) << "the next one; near ranks have had one between";
                    peer.send_slice(0);
                  }),
              HasSubstr("rank 1 sent rank 0 a slice of an operation that is not under way"));
}

// Rank 0 chooses the size of its own slices, however large a peer's room is.
TEST(RoguePeer, ThatGrantsHugeSlicesGetsNoLargerOnesThanOthers) {
  Environment environment;
  environment.slice_bytes = 64;
  error_against([](World& world) { (void)world.all_gather(std::vector<std::byte>(1000)); },
                [](RoguePeer& peer) {
                  peer.signal.kind = OpKind::all_gather;
                  peer.grant(1, std::uint64_t{1} << 31);
                  EXPECT_EQ(peer.await_slice().bytes.size(), 64u);
                  peer.grant(7, 1);
                },
                environment);
}

TEST(RoguePeer, IsNamedForASplitWithoutAColour) {
  EXPECT_THAT(error_against([](World& world) { (void)world.split(0); },
                            [](RoguePeer& peer) {
                              peer.signal.kind = OpKind::split;
                              peer.grant(1);
                              peer.receive_signal();
                              peer.send_slice(3);
                            }),
              HasSubstr("rank 1 brought 3 bytes to split, not a colour"));
}

}  // namespace
}  // namespace shunt::test
