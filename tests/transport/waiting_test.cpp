// Sleeping and waking, on every backend.
#include <random>
#include <thread>

#include "support/transport_ranks.hpp"

namespace shunt::test {
namespace {

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

TEST_P(TransportWaiting, ASleepDoesNotBeginIfSomethingHappenedSinceObserve) {
  run([](Transport& transport) {
    const std::uint32_t seen = transport.observe();
    transport.wake();
    require(is_woken(transport, seen), "the sleep ends at once");
  });
}

TEST_P(TransportWaiting, WakeEndsTheSleepOfEveryThreadOfTheRank) {
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
