// The message capability, and sleeping until something happens, on every backend.
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/transport_ranks.hpp"

namespace shunt::test {
namespace {

class TransportMessages : public TransportTest {};
SHUNT_ON_ALL_BACKENDS(TransportMessages);

void fill_until_full(Transport& transport, RankId peer, std::uint64_t& next) {
  while (transport.post(peer, std::as_bytes(std::span(&next, 1))) == Post::posted) {
    ++next;
    require(next < 1'000'000, "a mailbox is bounded");
  }
}

TEST_P(TransportMessages, ArriveOnceAndInOrderFromEachPeerUnderRandomDelays) {
  run([](Transport& transport) {
    constexpr std::uint64_t kEach = 1500;
    const auto num_ranks = static_cast<std::size_t>(transport.size());
    std::minstd_rand random(static_cast<unsigned>(transport.rank().value + 1));
    std::vector<std::uint64_t> sent(num_ranks), received(num_ranks);
    await(transport, [&] {
      for (std::size_t peer = 0; peer < num_ranks; ++peer)
        for (auto burst = random() % 100; burst > 0 && sent[peer] < kEach; --burst) {
          if (transport.post(RankId(peer), std::as_bytes(std::span(&sent[peer], 1))) == Post::again) break;
          ++sent[peer];
        }
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      Message message;
      for (auto burst = random() % 100; burst > 0 && transport.poll(message); --burst) {
        std::uint64_t& next = received[message.from.index()];
        require(value_of<std::uint64_t>(message) == next++, "no message is lost, doubled or overtaken");
      }
      const std::vector<std::uint64_t> all(num_ranks, kEach);
      return sent == all && received == all;
    });
    Message message;
    require(!transport.poll(message), "nothing arrives that was not sent");
  });
}

TEST_P(TransportMessages, AFullMailboxSaysAgainAndTakesMoreOnceEmptied) {
  run([](Transport& transport) {
    const RankId next((transport.rank().value + 1) % transport.size());
    Barrier barrier(transport);
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (int round = 0; round < 3; ++round) {
      const std::uint64_t before = sent;
      await(transport, [&] {
        fill_until_full(transport, next, sent);
        return sent > before;  // an empty mailbox takes a message, once it is known to be empty
      });
      barrier.word(next) = sent;
      barrier.wait();
      for (; received < barrier.word(transport.rank()); ++received)
        require(value_of<std::uint64_t>(receive(transport)) == received, "what was posted arrives, in order");
      Message message;
      require(!transport.poll(message), "what was refused does not arrive");
      barrier.wait();
    }
  });
}

TEST_P(TransportMessages, OfEveryLengthArriveWhole) {
  run([](Transport& transport) {
    const RankId next((transport.rank().value + 1) % transport.size());
    for (std::size_t bytes = 0; bytes <= kMaxMessageBytes; ++bytes) {
      std::vector<std::byte> sent(bytes);
      for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(bytes * 31 + i);
      send(transport, next, sent);
      const Message message = receive(transport);
      require(message.bytes == bytes, "the length arrives");
      require(std::equal(sent.begin(), sent.end(), message.data.begin()), "the bytes arrive");
      require(RankId((message.from.value + 1) % transport.size()) == transport.rank(), "the sender is named");
    }
  });
}

/// Backends on which a posted message can be polled at once.
class MessagesOfOneMachine : public TransportTest {};
SHUNT_ON_BACKENDS(MessagesOfOneMachine, Backend::inproc, Backend::shm);

TEST_P(MessagesOfOneMachine, OfABusyPeerDontStarveTheOthers) {
  run([](Transport& transport) {
    Barrier barrier(transport);
    std::uint64_t number = 0;
    fill_until_full(transport, RankId(0), number);
    barrier.wait();
    if (transport.rank() == RankId(0)) {
      std::set<RankId> senders;
      for (std::int32_t i = 0; i < transport.size(); ++i) senders.insert(receive(transport).from);
      require(senders.size() == static_cast<std::size_t>(transport.size()), "each peer has its turn");
    }
    barrier.wait();
  });
}

using Clock = std::chrono::steady_clock;

// Far longer than anything here takes; a sleep that lasts so long was never woken.
constexpr std::chrono::seconds kForever{20};

class TransportWaiting : public TransportTest {};
SHUNT_ON_ALL_BACKENDS(TransportWaiting);

bool is_woken(Transport& transport, std::uint32_t seen) {
  const auto start = Clock::now();
  while (transport.observe() == seen) {
    transport.sleep(seen, kForever);
    if (Clock::now() - start >= kForever) return false;
  }
  return true;
}

TEST_P(TransportWaiting, ASleepEndsAfterItsLimit) {
  run([](Transport& transport) {
    for (const int limit_us : {0, 5, 20, 1000, 50'000}) {
      const auto start = Clock::now();
      transport.sleep(transport.observe(), std::chrono::microseconds(limit_us));
      require(Clock::now() - start < kForever, "the limit ends the sleep");
    }
  });
}

TEST_P(TransportWaiting, ASleepLastsWhileNothingHappens) {
  run([](Transport& transport) {
    Barrier barrier(transport);
    barrier.wait();
    const std::chrono::milliseconds limit(50);
    const auto start = Clock::now();
    // A sleep may end early for no reason, but not as a rule.
    for (int i = 0; i < 10 && Clock::now() - start < limit; ++i) transport.sleep(transport.observe(), limit);
    require(Clock::now() - start >= limit, "nothing ends the sleep");
  });
}

TEST_P(TransportWaiting, WakeEndsTheSleepOfEveryThreadOfTheRankAndOneThatBeginsAfterwards) {
  run([](Transport& transport) {
    const std::uint32_t seen = transport.observe();
    std::atomic<int> num_woken{0};
    {
      const auto sleeper = [&] { num_woken += is_woken(transport, seen) ? 1 : 0; };
      std::jthread first(sleeper);
      std::jthread second(sleeper);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      transport.wake();
    }
    require(num_woken == 2, "both are woken");
    require(is_woken(transport, seen), "something has happened since observe()");
  });
}

// A token goes round ten thousand times. Each holder delays it for about as long as a sleeper spins, so that it arrives
// while the next rank spins, is about to sleep, and sleeps.
TEST_P(TransportWaiting, NoWakeUpIsLost) {
  run([](Transport& transport) {
    constexpr std::uint64_t kHops = 10'000;
    const auto size = static_cast<std::uint64_t>(transport.size());
    const RankId next((transport.rank().value + 1) % transport.size());
    std::minstd_rand random(static_cast<unsigned>(transport.rank().value + 1));
    if (transport.rank() == RankId(0)) send_value(transport, next, std::uint64_t{1});
    for (std::uint64_t hop = (transport.rank().index() + size - 1) % size + 1; hop <= kHops; hop += size) {
      Message message;
      for (;;) {
        const std::uint32_t seen = transport.observe();
        if (transport.poll(message)) break;
        require(is_woken(transport, seen), "the message wakes the sleeper");
      }
      require(value_of<std::uint64_t>(message) == hop, "the token comes round in order");
      const auto delay_end = Clock::now() + std::chrono::microseconds(10 + random() % 25);
      while (Clock::now() < delay_end) {
      }
      if (hop < kHops) send_value(transport, next, hop + 1);
    }
  });
}

}  // namespace
}  // namespace shunt::test
