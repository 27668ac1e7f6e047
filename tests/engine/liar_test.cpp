// A far rank that is let in and lies: it is named, and what it sends finds no room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shunt/engine.hpp"
#include "support/liar.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

void call_barrier(World& world) { world.barrier(); }

/// Calls barrier until something is wrong.
void call_barriers(World& world) {
  for (;;) world.barrier();
}

TEST(Liar, ThatGrantsNothingOrNoBytesIsNamed) {
  EXPECT_THAT(error_against(call_barrier, [](Liar& liar) { liar.grant(0); }),
              HasSubstr("rank 1 granted rank 0 room for 0 slices of 1024 bytes"));
  EXPECT_THAT(error_against(call_barrier, [](Liar& liar) { liar.grant(1, 0); }),
              HasSubstr("rank 1 granted rank 0 room for 1 slices of 0 bytes"));
}

TEST(Liar, ThatGrantsMoreThanAnybodyHasIsNamed) {
  EXPECT_THAT(error_against(call_barrier, [](Liar& liar) { liar.grant(std::uint64_t{1} << 40); }),
              HasSubstr("rank 1 granted rank 0 room for 1099511627776 slices"));
  EXPECT_THAT(error_against(call_barrier, [](Liar& liar) { liar.grant(1, std::uint64_t{1} << 40); }),
              HasSubstr("slices of 1099511627776 bytes"));
}

TEST(Liar, ThatGrantsSlicesOfAnotherSizeIsNamed) {
  EXPECT_THAT(error_against(call_barrier,
                            [](Liar& liar) {
                              liar.grant(1, 1024);
                              liar.grant(1, 2048);
                            }),
              HasSubstr("rank 1 granted rank 0 room for 1 slices of 2048 bytes"));
}

// Room is given back slice by slice; there was none to give back, or the stream has ended.
TEST(Liar, ThatGrantsRoomForSlicesThatItWasNotSentIsNamed) {
  EXPECT_THAT(error_against(call_barrier,
                            [](Liar& liar) {
                              liar.grant(4);
                              liar.grant(2);
                            }),
              HasSubstr("rank 1 granted rank 0 room for 2 slices of 1024 bytes"));
}

TEST(Liar, ThatGrantsRoomBeyondTheLastSliceIsNamed) {
  EXPECT_THAT(error_against(call_barrier,
                            [](Liar& liar) {
                              liar.grant(4);
                              EXPECT_TRUE(liar.await_slice().tag.is_last);
                              liar.grant(1);
                            }),
              HasSubstr("rank 1 granted rank 0 room for 1 slices of 1024 bytes"));
}

// However large the slices are that a peer has room for, this rank's buffers are its own affair.
TEST(Liar, ThatGrantsHugeSlicesGetsNoLargerOnesThanOthers) {
  Environment environment;
  environment.slice_bytes = 64;
  error_against([](World& world) { (void)world.all_gather(std::vector<std::byte>(1000)); },
                [](Liar& liar) {
                  liar.about.kind = OpKind::all_gather;
                  liar.grant(1, std::uint64_t{1} << 31);
                  EXPECT_EQ(liar.await_slice().bytes.size(), 64u);
                  liar.grant(7, 1);
                },
                environment);
}

TEST(Liar, ThatSaysWhatOnlyNearRanksSayIsNamed) {
  for (const Signal signal : {Signal::announce, Signal::done, static_cast<Signal>(9)})
    EXPECT_THAT(error_against(call_barrier,
                              [&](Liar& liar) {
                                liar.about.signal = signal;
                                liar.say();
                              }),
                HasSubstr("rank 1 sent rank 0 signal"));
}

TEST(Liar, ThatSendsHalfASignalIsNamed) {
  EXPECT_THAT(error_against(call_barrier, [](Liar& liar) { liar.say(8); }),
              HasSubstr("rank 1 sent rank 0 a message of 8 bytes"));
}

TEST(Liar, ThatMakesUpOperationsIsNamedBeforeTheyFillTheMemory) {
  EXPECT_THAT(error_against(call_barrier,
                            [](Liar& liar) {
                              liar.about.engine = 12345;
                              for (std::int32_t i = 0; i <= OperationTable::kMostKept; ++i, ++liar.about.sequence)
                                liar.say();
                            }),
              HasSubstr("rank 1 signalled to rank 0 more than 8192 operations that are not in progress there"));
}

TEST(Liar, ThatSendsASliceOfNoOperationIsNamed) {
  EXPECT_THAT(error_against(call_barrier,
                            [](Liar& liar) {
                              liar.about.sequence = 77;
                              liar.send_slice(0);
                            }),
              HasSubstr("rank 1 sent rank 0 a slice of an operation that is not under way"));
}

TEST(Liar, ThatSendsASliceAfterTheLastOperationEndedIsNamed) {
  EXPECT_THAT(error_against(call_barriers,
                            [](Liar& liar) {
                              liar.grant(1);
                              liar.hear();
                              liar.send_slice(0);
                              EXPECT_EQ(liar.hear().sequence, 2u) << "the next swap; near ranks have had one between";
                              liar.send_slice(0);
                            }),
              HasSubstr("rank 1 sent rank 0 a slice of an operation that is not under way"));
}

/// The liar has been granted four slices of 128 KiB for a barrier, and sends something.
std::string error_of_slices(const std::function<void(Liar&)>& send) {
  return error_against(call_barrier, [&](Liar& liar) {
    liar.grant(1);
    EXPECT_EQ(liar.hear().offset, 4u);
    send(liar);
  });
}

TEST(Liar, ThatSendsABadSliceIsNamed) {
  EXPECT_THAT(error_of_slices([](Liar& liar) { liar.send_slice(0, 4); }), HasSubstr("rank 1 sent rank 0 slice #4"));
  EXPECT_THAT(error_of_slices([](Liar& liar) { liar.send_slice((128 << 10) + 1); }),
              HasSubstr("rank 1 sent rank 0 slice #0 of 131073 bytes, which was not granted"));
}

TEST(Liar, ThatSendsASliceTwiceIsNamed) {
  EXPECT_THAT(error_of_slices([](Liar& liar) {
                liar.send_slice(0, 1, false);
                liar.send_slice(0, 1, false);
              }),
              HasSubstr("rank 1 sent rank 0 slice #1"));
}

TEST(Liar, ThatEndsAStreamTwiceOrBeforeItsSlicesIsNamed) {
  EXPECT_THAT(error_of_slices([](Liar& liar) {
                liar.send_slice(0, 2, true);
                liar.send_slice(0, 1, true);
              }),
              HasSubstr("rank 1 sent rank 0 slice #1"));
  EXPECT_THAT(error_of_slices([](Liar& liar) {
                liar.send_slice(0, 2, false);
                liar.send_slice(0, 1, true);
              }),
              HasSubstr("rank 1 sent rank 0 slice #1"));
}

TEST(Liar, ThatSendsMoreThanABarrierHasIsNamed) {
  EXPECT_THAT(error_of_slices([](Liar& liar) { liar.send_slice(1); }),
              HasSubstr("rank 1 sent rank 0 more than the 0 bytes that barrier #0 allows"));
}

TEST(Liar, ThatBringsNoColourIsNamed) {
  EXPECT_THAT(error_against([](World& world) { (void)world.split(0); },
                            [](Liar& liar) {
                              liar.about.kind = OpKind::split;
                              liar.grant(1);
                              liar.hear();
                              liar.send_slice(3);
                            }),
              HasSubstr("rank 1 brought 3 bytes to split, not a colour"));
}

}  // namespace
}  // namespace shunt::test
