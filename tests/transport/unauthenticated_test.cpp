// Neither unauthenticated connections nor a network that tampers can disturb ranks that join.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <thread>

#include "shunt/log.hpp"
#include "support/child_process.hpp"
#include "support/raw_connection.hpp"
#include "support/rendezvous_ranks.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kHandshakeBytes = bootstrap::kHelloBytes + sizeof(bootstrap::Digest);
constexpr std::size_t kContributionBytes = 3 * sizeof(std::uint32_t) + sizeof(bootstrap::Digest);

void await_end(const RawConnection& connection) {
  while (!connection.is_closed_by_other_side()) {
  }
}

/// A network that the test carries the bytes of.
class TappedRendezvous : public RendezvousTest {
 protected:
  /// Both ends of a participant's connection to rank 0.
  struct Line {
    RawConnection participant;
    RawConnection coordinator;
  };

  /// A rank whose first connection is a line. Later ones lead to rank 0 itself.
  [[nodiscard]] std::pair<RendezvousRank, Line> start_on_a_line(std::int32_t rank, std::int32_t size) const {
    bootstrap::RendezvousOptions tapped = options(rank, size);
    tapped.endpoint.address = "127.0.0.2," + address_;
    const auto listeners = net::listen_at({.port = tapped.endpoint.port, .interface = "127.0.0.2"});
    RendezvousRank participant(tapped);
    return {std::move(participant), Line{RawConnection(listeners.front()), RawConnection(endpoint())}};
  }

  /// Returns once the participant has sent that many bytes, with these.
  [[nodiscard]] static net::Bytes carry(Line& line, std::size_t num_bytes) {
    net::Bytes sent;
    while (sent.size() < num_bytes) {
      std::array<pollfd, 2> ends = {
          {{line.participant.socket().get(), POLLIN, 0}, {line.coordinator.socket().get(), POLLIN, 0}}};
      require(wait_ready(ends, std::chrono::steady_clock::now() + 30s), "one of them sends something");
      if (ends[1].revents != 0) line.participant.send(line.coordinator.receive(1));
      if (ends[0].revents == 0) continue;
      const net::Bytes byte = line.participant.receive(1);
      require(!byte.empty(), "the participant goes on");
      line.coordinator.send(byte);
      net::append(sent, byte);
    }
    return sent;
  }
};

/// Connections that don't prove that they know the token, while ranks join.
class Unauthenticated : public TappedRendezvous {
 protected:
  Unauthenticated() {
    set_log_sink([](std::string_view) {});  // rank 0 logs refusals
  }
  ~Unauthenticated() override { set_log_sink(nullptr); }

  /// The first message of a rank.
  [[nodiscard]] static net::Bytes hello_of(std::int32_t rank, std::int32_t size) {
    return bootstrap::encode({.rank = rank, .size = size, .nonce = bootstrap::draw_nonce()});
  }
  /// Sends a hello byte by byte.
  [[nodiscard]] static std::jthread send_slowly(RawConnection& connection) {
    return std::jthread([&connection](const std::stop_token& stop) {
      for (const std::byte byte : hello_of(1, 2)) {
        if (stop.stop_requested()) return;
        connection.send(std::span(&byte, 1));
        std::this_thread::sleep_for(200ms);
      }
    });
  }
  static void expect_refused(RawConnection& connection) {
    EXPECT_EQ(connection.receive(1), net::pack(bootstrap::Verdict::refused));
    EXPECT_TRUE(connection.is_closed_by_other_side());
  }
  /// The other rank joins while the connections are still there.
  void expect_that_ranks_join(RendezvousRank& coordinator) {
    (void)start(1, 2).expect_joined();
    (void)coordinator.expect_joined();
  }
};

TEST_F(Unauthenticated, GarbageEndsTheConnection) {
  RendezvousRank coordinator = start(0, 2);
  std::vector<std::string> garbage = {
      fmt::format("GET / HTTP/1.1\r\nHost: {}\r\nUser-Agent: a browser\r\n\r\n", net::describe(endpoint()))};
  for (const std::size_t num_bytes :
       {bootstrap::kHelloBytes, bootstrap::kHelloBytes + 1, std::size_t{5000}, std::size_t{1} << 20})
    garbage.emplace_back(num_bytes, '\xff');
  for (const std::string& text : garbage) {
    RawConnection connection(endpoint());
    connection.send(text);
    EXPECT_TRUE(connection.is_closed_by_other_side()) << text.size();
  }
  expect_that_ranks_join(coordinator);
}

TEST_F(Unauthenticated, ConnectionsThatStopInTheMiddleOrSendSlowlyDelayNoRank) {
  RendezvousRank coordinator = start(0, 2);
  RawConnection slow(endpoint());
  const std::jthread sender = send_slowly(slow);
  std::vector<RawConnection> connections;
  net::Bytes bytes = hello_of(1, 2);
  net::append(bytes, bootstrap::Digest{});
  for (const std::size_t num_bytes :
       {std::size_t{0}, std::size_t{1}, bootstrap::kHelloBytes - 1, bootstrap::kHelloBytes, bytes.size() - 1})
    connections.emplace_back(endpoint()).send(std::span(bytes).first(num_bytes));
  for (const std::size_t num_bytes : {std::size_t{0}, bootstrap::kHelloBytes})
    for (const bool resets : {false, true}) {
      RawConnection closing(endpoint());
      closing.send(std::span(bytes).first(num_bytes));
      if (resets) closing.reset();
    }
  expect_that_ranks_join(coordinator);
}

TEST_F(Unauthenticated, ConnectionsAreClosedAfterALimitThoughTheySendSomething) {
  RendezvousRank coordinator = start(0, 2);
  RawConnection silent(endpoint());
  RawConnection slow(endpoint());
  const std::jthread sender = send_slowly(slow);
  EXPECT_TRUE(silent.is_closed_by_other_side());
  EXPECT_TRUE(slow.is_closed_by_other_side());
  expect_that_ranks_join(coordinator);
}

TEST_F(Unauthenticated, WrongProofsAreRefused) {
  RendezvousRank coordinator = start(0, 2);
  const bootstrap::Digest wrong{};
  for (const bool is_rank_zeros : {false, true}) {
    RawConnection connection(endpoint());
    connection.send(hello_of(1, 2));
    const net::Bytes answer = connection.receive(bootstrap::kHelloBytes);
    ASSERT_TRUE(bootstrap::decode_hello(answer));
    connection.send(is_rank_zeros ? std::span(answer).last(wrong.size()) : std::span<const std::byte>(wrong));
    expect_refused(connection);
  }
  expect_that_ranks_join(coordinator);
}

TEST_F(Unauthenticated, ManyConnectionsMakeRoomForLaterOnes) {
  RendezvousRank coordinator = start(0, 2);
  constexpr std::ptrdiff_t kMany = 600;
  std::vector<RawConnection> connections;
  for (int i = 0; i < kMany; ++i) connections.emplace_back(endpoint());
  EXPECT_TRUE(connections.front().is_closed_by_other_side());
  // Both ends of every connection belong to this process, so rank 0 holds at most 300.
  const auto num_descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  EXPECT_LT(num_descriptors, kMany + 300);
  expect_that_ranks_join(coordinator);
}

TEST_F(Unauthenticated, ConnectionsDontTakeTheLastDescriptor) {
  ChildProcess coordinator([&] {
    const rlimit few{48, 48};
    setrlimit(RLIMIT_NOFILE, &few);
    const auto rendezvous = bootstrap::join_rendezvous(options(0, 2));
    for (int round = 0; round < 2; ++round) (void)rendezvous->all_gather({}, limit_);
  });
  std::vector<RawConnection> connections;
  for (int i = 0; i < 100; ++i) connections.emplace_back(endpoint());
  EXPECT_TRUE(connections.front().is_closed_by_other_side());
  (void)start(1, 2).expect_joined();
  expect_returned(coordinator);
}

TEST_F(Unauthenticated, RecordedHandshakesCantBeReplayed) {
  RendezvousRank coordinator = start(0, 3);
  auto [victim, line] = start_on_a_line(1, 3);
  const net::Bytes recorded = carry(line, kHandshakeBytes + kContributionBytes);
  line.participant.reset();

  const auto replay = [&] {
    RawConnection connection(endpoint());
    connection.send(recorded);
    EXPECT_TRUE(bootstrap::decode_hello(connection.receive(bootstrap::kHelloBytes)));
    expect_refused(connection);
  };
  for (int i = 0; i < 3; ++i) replay();
  (void)start(2, 3).expect_joined();
  for (RendezvousRank* rank : {&coordinator, &victim}) (void)rank->expect_joined();

  RendezvousRank next = start(0, 2);
  replay();
  expect_that_ranks_join(next);
}

TEST_F(Unauthenticated, ListenersAtRankZerosEndpointAreNotTakenForIt) {
  limit_ = 500ms;
  const std::vector<Descriptor> listeners = net::listen_at(endpoint());
  const auto answer_once = [&](std::span<const std::byte> answer) {
    const RawConnection connection(listeners.front());
    connection.send(answer);
    await_end(connection);
  };

  RendezvousRank participant = start(1, 2);
  answer_once(net::pack(hello_of(0, 2), bootstrap::Verdict::accepted, bootstrap::Digest{}));
  participant.expect_error(ErrorCode::invalid_argument, "rank 1 does not accept the token of rank 0");

  RendezvousRank other_participant = start(1, 2);
  answer_once(net::bytes_of(std::string(400, 'x')));
  // It connects again and again, without an answer.
  other_participant.expect_error(ErrorCode::deadline, "in vain for rank 0");
}

TEST_F(Unauthenticated, TooLongContributionsGetNoMemory) {
  RendezvousRank coordinator = start(0, 2);
  ScriptedParticipant participant(options(1, 2));
  participant.send(bootstrap::FrameKind::contribution, std::string(Bootstrap::kMaxBytes + 5, 'x'));
  EXPECT_FALSE(participant.receive()) << "rank 0 has not hung up";
  expect_that_ranks_join(coordinator);
}

/// A frame whose MAC is wrong.
net::Bytes forge(bootstrap::FrameKind kind, std::uint32_t round_or_code) {
  const net::Bytes body = net::pack(round_or_code, net::bytes_of("forged"));
  return net::pack(kind, static_cast<std::uint32_t>(body.size()), body, bootstrap::Digest{});
}

TEST_F(TappedRendezvous, IsJoinedOnAnotherConnectionWhateverHappensToTheFirst) {
  const auto cut = [](Line& line) { line.coordinator.socket() = {}; };
  const auto cut_unnoticed_by_rank_0 = [](Line&) {};
  const auto forge_contribution = [](Line& line) {
    line.coordinator.send(forge(bootstrap::FrameKind::contribution, 1));
    await_end(line.coordinator);
  };
  const auto forge_failure = [&](Line& line) {
    line.participant.send(forge(bootstrap::FrameKind::failure, 0));
    await_end(line.participant);
    cut(line);
  };
  const std::vector<std::size_t> after_the_proof = {kHandshakeBytes, kHandshakeBytes + kContributionBytes};
  std::vector<std::size_t> at_any_time = after_the_proof;
  at_any_time.push_back(bootstrap::kHelloBytes - 1);
  // What happens, and how many bytes the participant has sent before.
  const std::vector<std::tuple<const char*, std::function<void(Line&)>, std::vector<std::size_t>>> events = {
      {"cut", cut, at_any_time},
      {"cut, unnoticed by rank 0", cut_unnoticed_by_rank_0, at_any_time},
      {"a contribution is forged", forge_contribution, after_the_proof},
      {"a failure is forged", forge_failure, after_the_proof}};
  for (const auto& [name, happen, moments] : events)
    for (const std::size_t num_bytes : moments) {
      SCOPED_TRACE(fmt::format("{}, after {} bytes", name, num_bytes));
      RendezvousRank coordinator = start(0, 3);
      auto [participant, line] = start_on_a_line(1, 3);
      (void)carry(line, num_bytes);
      happen(line);
      line.participant.reset();
      RendezvousRank last = start(2, 3);
      for (RendezvousRank* rank : {&coordinator, &participant, &last})
        EXPECT_TRUE(rank->expect_joined().texts[1].empty()) << "a forged text";
    }
}

}  // namespace
}  // namespace shunt::test
