// The memory capability, on every backend.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "support/require_error.hpp"
#include "support/transport_ranks.hpp"
#include "transport/inproc/join.hpp"

namespace shunt::test {
namespace {

class TransportMemory : public TransportTest {};
SHUNT_ON_BACKENDS(TransportMemory, Backend::inproc, Backend::shm);

TEST_P(TransportMemory, GivesPageAlignedBlocksThatAreFoundByTheirOffset) {
  run([](Transport& transport) {
    for (const std::size_t bytes : {0, 1, 4096, 4097, 1 << 20}) {
      const Block block = transport.allocate(bytes);
      require(reinterpret_cast<std::uintptr_t>(block.data) % 4096 == 0, "blocks are aligned to a page");
      require(block.bytes == bytes, "a block has the size that was asked for");
      const auto offset = transport.offset_of(block.data, bytes);
      require(offset.has_value(), "a block has an offset");
      require(transport.peer_pointer(transport.rank(), *offset, bytes) == block.data, "the offset leads to the block");
    }
  });
}

TEST_P(TransportMemory, KnowsNoOffsetOfMemoryThatIsNotItsOwn) {
  run([](Transport& transport) {
    const Block block = transport.allocate(4096);
    const std::uint64_t offset = *transport.offset_of(block.data, 4096);
    const std::vector<std::byte> heap(64);
    require(!transport.offset_of(heap.data(), heap.size()), "the heap has no offset");
    require(!transport.offset_of(nullptr, 0), "null has no offset");
    require(!transport.offset_of(block.data - offset, 64), "control structures have no offset");
    require(!transport.offset_of(block.data, SIZE_MAX), "a range beyond the end has no offset");
  });
}

TEST_P(TransportMemory, RejectsOffsetsThatNoBlockCanHave) {
  run([](Transport& transport) {
    // Control structures; beyond the end; around it; from before it to beyond it.
    using Range = std::pair<std::uint64_t, std::size_t>;
    for (const auto& [offset, bytes] : {Range(0, 64), {UINT64_MAX, 1}, {UINT64_MAX - 63, 128}, {1 << 20, SIZE_MAX}})
      for (std::int32_t peer = 0; peer < transport.size(); ++peer)
        require_error(
            [&, offset = offset, bytes = bytes] { (void)transport.peer_pointer(RankId(peer), offset, bytes); },
            ErrorCode::mismatch, "");
  });
}

// Every rank writes megabytes into every block, then sends a message; a rank that polls it must see all of them.
TEST_P(TransportMemory, ShowsRowsToARankThatPolledTheMessageSentAfterThem) {
  run([](Transport& transport) {
    constexpr std::size_t kWords = (std::size_t{1} << 20) / sizeof(std::uint64_t);
    const auto num_ranks = static_cast<std::size_t>(transport.size());
    const Block block = transport.allocate(num_ranks * kWords * sizeof(std::uint64_t));
    Barrier barrier(transport);
    barrier.word(transport.rank()) = *transport.offset_of(block.data, block.bytes);
    barrier.wait();
    for (std::uint64_t round = 0; round < 4; ++round) {
      for (std::size_t peer = 0; peer < num_ranks; ++peer) {
        auto* words = reinterpret_cast<std::uint64_t*>(
            transport.peer_pointer(RankId(peer), barrier.word(RankId(peer)), block.bytes));
        std::fill_n(words + transport.rank().index() * kWords, kWords, round * 100 + transport.rank().index());
        send_value(transport, RankId(peer), round);
      }
      for (std::size_t i = 0; i < num_ranks; ++i) {
        const Message message = receive(transport);
        require(value_of<std::uint64_t>(message) == round, "each peer sends one message a round");
        const auto* words = reinterpret_cast<const std::uint64_t*>(block.data) + message.from.index() * kWords;
        const std::uint64_t expected = round * 100 + message.from.index();
        require(std::all_of(words, words + kWords, [&](std::uint64_t word) { return word == expected; }),
                "every word that was written before the message is seen");
      }
      barrier.wait();
    }
  });
}

TEST(InprocMemory, BlocksOutliveTheirTransport) {
  auto ends = inproc::join(2);
  const Block block = ends.front()->allocate(4096);
  ends.clear();
  std::memset(block.data, 1, block.bytes);
}

}  // namespace
}  // namespace shunt::test
