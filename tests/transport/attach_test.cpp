// Processes of one machine map each other's memory, though other connections reach their sockets.
#include "transport/shm/attach.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "support/raw_connection.hpp"
#include "support/require_error.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

/// Ranks that attach as threads, each with a listener. Their numbers are 10, 11 … as parts of a larger world.
class Attach : public LeavesNoTrace {
 protected:
  static constexpr std::int32_t kFirst = 10;

  void prepare(std::size_t size) {
    listeners_.clear();
    while (listeners_.size() < size) listeners_.push_back(shm::open_near_listener());
  }
  void TearDown() override {
    listeners_.clear();
    LeavesNoTrace::TearDown();
  }

  static std::uint64_t session(std::int32_t from, std::int32_t to) {
    return 1000 + 100 * static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(to);
  }
  [[nodiscard]] const net::Listener& listener(std::int32_t index) const { return listeners_[RankId(index).index()]; }

  [[nodiscard]] std::vector<net::Contact> contacts(std::int32_t index) const {
    std::vector<net::Contact> ranks;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(listeners_.size()); ++i)
      ranks.push_back({RankId(kFirst + i), {}, listener(i).endpoint.address, session(index, i), session(i, index)});
    return ranks;
  }

  std::future<std::shared_ptr<LocalTransport>> start(std::int32_t index) {
    return std::async(std::launch::async, [this, index, limit = limit_, ranks = contacts(index)] {
      shm::Attached attached = shm::attach(RankId(kFirst + index), ranks, limit, listener(index));
      std::vector<RankId> members;
      for (const net::Contact& each : ranks) members.push_back(each.rank);
      auto end =
          std::make_shared<LocalTransport>(RankId(kFirst + index), std::move(attached.segments), std::move(members));
      end->watch(std::move(attached.sockets), 5s);
      return end;
    });
  }

  std::vector<std::shared_ptr<LocalTransport>> attach_all(const std::vector<std::int32_t>& order) {
    std::vector<std::future<std::shared_ptr<LocalTransport>>> starting(order.size());
    for (const std::int32_t index : order) starting[RankId(index).index()] = start(index);
    std::vector<std::shared_ptr<LocalTransport>> ends;
    for (auto& end : starting) ends.push_back(end.get());
    return ends;
  }

  std::vector<net::Listener> listeners_;
  std::chrono::milliseconds limit_{20'000};
};

void expect_same_memory(const std::vector<std::shared_ptr<LocalTransport>>& ends) {
  for (const auto& end : ends) {
    const Block block = end->allocate(64);
    *block.data = std::byte{42};
    const auto offset = end->offset_of(block.data, 64);
    ASSERT_TRUE(offset);
    for (const auto& peer : ends) EXPECT_EQ(*peer->peer_pointer(end->rank(), *offset, 64), std::byte{42});
  }
}

TEST_F(Attach, MapsAllMemoryInWhateverOrderRanksStart) {
  for (const auto& order : {std::vector{0, 1, 2, 3, 4, 5, 6}, std::vector{6, 2, 0, 5, 1, 4, 3}}) {
    prepare(7);
    expect_same_memory(attach_all(order));
  }
}

TEST_F(Attach, IsNotDisturbedByUnidentifiedConnections) {
  prepare(3);
  std::vector<RawConnection> connections;
  for (const std::int32_t index : {0, 1, 2}) {
    for (const std::size_t bytes : {0, 1, 16, 512, 5000})
      connections.emplace_back(listener(index).endpoint).send(std::string(bytes, '\xff'));
    RawConnection& stranger = connections.emplace_back(listener(index).endpoint);
    EXPECT_EQ(shm::send_hello(stranger.socket(), {.session = 1, .rank = kFirst + 2}, STDERR_FILENO), shm::Sent::done);
    (void)RawConnection(listener(index).endpoint);  // hangs up at once
  }
  expect_same_memory(attach_all({0, 1, 2}));
}

TEST_F(Attach, NamesARankThatHasEndedWhetherItWouldConnectOrBeConnectedTo) {
  for (const std::int32_t victim : {0, 1, 2}) {
    prepare(3);
    std::vector<std::vector<net::Contact>> known;
    for (const std::int32_t index : {0, 1, 2}) known.push_back(contacts(index));
    listeners_[RankId(victim).index()].socket = {};
    for (const std::int32_t witness : {0, 1, 2})
      if (witness != victim)
        require_error(
            [&] {
              (void)shm::attach(RankId(kFirst + witness), known[RankId(witness).index()], limit_, listener(witness));
            },
            ErrorCode::peer_lost, fmt::format("rank {} ended while the ranks were joining", kFirst + victim));
  }
}

TEST_F(Attach, NamesARankThatEndsInTheMiddle) {
  prepare(2);
  auto waiting = start(0);
  {
    RawConnection mortal(listener(0).endpoint);
    ASSERT_EQ(shm::send_hello(mortal.socket(), {.session = session(1, 0), .rank = kFirst + 1}, STDERR_FILENO),
              shm::Sent::done);
    const auto answer = shm::receive_hello(mortal.socket());
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->hello.session, session(0, 1));
  }
  // What it sent is no segment.
  require_error([&] { (void)waiting.get(); }, ErrorCode::mismatch,
                "can't map the segment of rank 11: a peer's segment is not a sealed memfd");
}

TEST_F(Attach, NamesRanksThatDidNotCome) {
  limit_ = 300ms;
  prepare(4);
  auto first = start(0);
  limit_ = 600ms;
  auto third = start(2);
  require_error([&] { (void)first.get(); }, ErrorCode::deadline,
                "rank 10 waited 300 ms in vain for these ranks of its machine to share their memory: 11, 13");
  EXPECT_THROW((void)third.get(), Error);
}

}  // namespace
}  // namespace shunt::test
