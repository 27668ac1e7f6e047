// Faults and leaving, on every backend.
#include <fmt/format.h>

#include <thread>

#include "support/transport_ranks.hpp"

namespace shunt::test {
namespace {

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
