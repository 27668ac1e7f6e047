// When memory that a stream may still use is given back; no device is needed for that.
#include "engine/cuda/deferred_blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shunt::device {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeferredBlocksTest : public ::testing::Test {
 protected:
  /// A new block, or a deferred one. Blocks have names instead of memory: 1, 2 and so on.
  DeferredBlocks::Block take(std::size_t bytes) {
    return blocks_->take(bytes, [this](std::size_t) { return reinterpret_cast<std::byte*>(++num_made_); });
  }
  static std::uintptr_t name(const DeferredBlocks::Block& block) {
    return reinterpret_cast<std::uintptr_t>(block.get());
  }

  std::uintptr_t num_made_ = 0;
  std::vector<std::uintptr_t> given_back_;
  std::shared_ptr<DeferredBlocks> blocks_ = std::make_shared<DeferredBlocks>(
      [this](std::byte* block) { given_back_.push_back(reinterpret_cast<std::uintptr_t>(block)); });
};

TEST_F(DeferredBlocksTest, AreGivenBackWhenAllWorkThatMayUseThemIsComplete) {
  auto first = take(8);
  const std::uint64_t work = blocks_->begin_work();
  first.reset();
  EXPECT_FALSE(blocks_->empty());
  blocks_->complete(work - 1);
  EXPECT_THAT(given_back_, IsEmpty());
  blocks_->complete(work);
  EXPECT_THAT(given_back_, ElementsAre(1));
  EXPECT_TRUE(blocks_->empty());
}

TEST_F(DeferredBlocksTest, AreGivenBackAtOnceWhenNothingIsUnderWay) {
  auto block = take(8);
  blocks_->complete(blocks_->begin_work());
  block.reset();
  EXPECT_THAT(given_back_, ElementsAre(1));
}

TEST_F(DeferredBlocksTest, OfWorkThatMadeRoomAreNotGivenBackWithWhatCameBefore) {
  std::uint64_t work = blocks_->begin_work();
  take(8).reset();
  blocks_->complete(work);  // the stream is idle, and this work not yet on it
  work = blocks_->begin_work();
  take(16).reset();
  EXPECT_THAT(given_back_, ElementsAre(1));
  blocks_->complete(work);
  EXPECT_THAT(given_back_, ElementsAre(1, 2));
}

TEST_F(DeferredBlocksTest, MayBeUsedAtOnceByLaterWorkOfTheStream) {
  auto block = take(8);
  const std::uint64_t before = blocks_->begin_work();
  block.reset();
  block = take(8);
  EXPECT_EQ(name(block), 1u);
  blocks_->complete(before);
  EXPECT_THAT(given_back_, IsEmpty()) << "it is in use again";
  const std::uint64_t after = blocks_->begin_work();
  block.reset();
  blocks_->complete(before);
  EXPECT_THAT(given_back_, IsEmpty());
  blocks_->complete(after);
  EXPECT_THAT(given_back_, ElementsAre(1));
}

TEST_F(DeferredBlocksTest, AreUsedAgainOnlyForTheSameSize) {
  auto block = take(8);
  (void)blocks_->begin_work();
  block.reset();
  EXPECT_EQ(name(take(16)), 2u);
}

TEST_F(DeferredBlocksTest, OutliveTheirPool) {
  auto block = take(8);
  auto held = take(8);
  (void)blocks_->begin_work();
  block.reset();
  blocks_.reset();
  EXPECT_THAT(given_back_, IsEmpty()) << "work may be under way";
  held.reset();
  EXPECT_THAT(given_back_, ElementsAre(1, 2));
}

}  // namespace
}  // namespace shunt::device
