// The contract of transport.hpp, on every backend: memory, messages, waiting, faults and leaving.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>
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
    const auto start = Clock::now();
    transport.sleep(seen, kForever);
    require(Clock::now() - start < kForever, "a sleep does not begin if something has happened since observe()");
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

class TransportFaults : public TransportTest {};
SHUNT_ON_ALL_BACKENDS(TransportFaults);

/// Ranks of one machine agree on one fault however many report at once; between machines a fault takes time.
class FaultsOfOneMachine : public TransportTest {};
SHUNT_ON_BACKENDS(FaultsOfOneMachine, Backend::inproc, Backend::shm);

/// As long as a text may be, so that it takes a while to write.
std::string text_of(RankId rank) { return fmt::format("rank {} tripped{:.>1000}", rank.value, ""); }

/// Ranks that spin until the same tick go on together. All processes share the clock.
void spin_until_next_tick() {
  using Tick = std::chrono::duration<std::int64_t, std::ratio<1, 200>>;
  const auto now = [] { return std::chrono::floor<Tick>(std::chrono::steady_clock::now()); };
  for (const auto start = now(); now() == start;) {
  }
}

void require_one_fault_for_all(Transport& transport) {
  Barrier barrier(transport);
  require(!transport.fault(), "a new world has no fault");
  barrier.wait();
  spin_until_next_tick();
  transport.report(ErrorCode::peer_failed, transport.rank(), text_of(transport.rank()));
  const auto fault = transport.fault();
  require(fault.has_value(), "a reported fault is seen by its reporter at once");
  require(fault->code == ErrorCode::peer_failed, "the code arrives");
  require(fault->culprit == fault->reporter, "culprit and reporter belong together");
  require(fault->text == text_of(fault->culprit), "the text is the reporter's");
  // Waiting goes on without await(), which a fault would end.
  barrier.word(transport.rank()) = fault->culprit.index() + 1;
  for (std::int32_t rank = 0; rank < transport.size(); ++rank) {
    const auto guard = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (barrier.word(RankId(rank)) == 0 && std::chrono::steady_clock::now() < guard) std::this_thread::yield();
    require(barrier.word(RankId(rank)) == fault->culprit.index() + 1, "all ranks name the same culprit");
  }
}

// A world has one first fault only, so it takes many worlds to see two reports at once.
TEST_P(FaultsOfOneMachine, TheFirstWinsAndEveryRankReadsTheSame) {
  for (int world = 0; world < 20; ++world) run(require_one_fault_for_all);
}

TEST_P(TransportFaults, WakeEveryRank) {
  run([](Transport& transport) {
    Barrier barrier(transport);
    barrier.wait();
    const RankId last(transport.size() - 1);
    if (transport.rank() == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      transport.report(ErrorCode::deadline, RankId(0), "too late");
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    while (!transport.fault()) {
      const std::uint32_t seen = transport.observe();
      if (!transport.fault()) transport.sleep(seen, std::chrono::seconds(20));
      require(std::chrono::steady_clock::now() - start < std::chrono::seconds(20), "the fault ends the sleep");
    }
    const bool is_near = transport.host(last) == transport.host(transport.rank());
    require(transport.fault()->reporter == last || !is_near, "the reporter is named on its machine");
    require(transport.fault()->culprit == RankId(0), "the culprit is named");
  });
}

TEST_P(TransportFaults, LongTextsAreCutAndLaterOnesIgnored) {
  run([](Transport& transport) {
    if (transport.rank() != RankId(0)) return;
    transport.report(ErrorCode::system, RankId(0), std::string(5000, 'x'));
    transport.report(ErrorCode::internal, RankId(0), "later");
    const auto fault = transport.fault();
    require(fault->code == ErrorCode::system, "the first report stays");
    require(fault->text.size() > 500 && fault->text.find_first_not_of('x') == std::string::npos,
            "as much of the text as fits is kept");
  });
}

TEST_P(TransportFaults, ARankThatLeavesIsSeenToHaveLeftAndAllItSentArrives) {
  run([](Transport& transport) {
    Barrier barrier(transport);
    require(!transport.has_left(transport.rank()), "no rank has left a new world");
    barrier.wait();
    for (std::int32_t peer = 0; peer < transport.size(); ++peer) send_value(transport, RankId(peer), peer);
    transport.leave();
    transport.leave();
    for (std::int32_t peer = 0; peer < transport.size(); ++peer)
      await(transport, [&] { return transport.has_left(RankId(peer)); });
    for (std::int32_t i = 0; i < transport.size(); ++i) {
      Message message;
      require(transport.poll(message), "what a peer sent before it left is there once it has left");
      require(value_of<std::int32_t>(message) == transport.rank().value, "and is whole");
    }
    require(!transport.fault(), "leaving is no fault");
  });
}

TEST_P(TransportFaults, APeerThatComputesIsNotReportedLost) {
  run(
      [](Transport& transport) {
        Barrier barrier(transport);
        barrier.wait();
        // No rank polls or posts meanwhile; only pings travel.
        for (int i = 0; i < 60; ++i) {
          for (std::int32_t peer = 0; peer < transport.size(); ++peer)
            if (RankId(peer) != transport.rank()) transport.suspect(RankId(peer));
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        require(!transport.fault(), "all are alive");
        barrier.wait();
      },
      std::chrono::milliseconds(400));
}

}  // namespace
}  // namespace shunt::test
