// The TCP carrier's own claims: which connections it accepts, and how it notices that a peer has ended.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support/eventually.hpp"
#include "support/loopback_ranks.hpp"
#include "support/raw_connection.hpp"
#include "support/require.hpp"
#include "transport/net/sockets.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/tcp/connection.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

bool is_listening(const net::Endpoint& endpoint) {
  return net::connect_to(endpoint, std::chrono::steady_clock::now() + 5s).socket.valid();
}

/// Can hold the link's thread at the next arrival.
struct HeldRank final : LocalTransport {
  using LocalTransport::LocalTransport;

  void wake() override {
    ++num_arrivals;
    while (is_held) std::this_thread::sleep_for(1ms);
  }

  std::atomic<int> num_arrivals = 0;
  std::atomic<bool> is_held = false;
};

/// Rank 1's link to rank 0, which the test plays: the link connects for messages, rank 0 has to connect for slices.
class TcpListener : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kToLink = 5, kToPeer = 6;
  static constexpr std::int32_t kMessages = 0, kSlices = 1;

  void SetUp() override {
    auto carrier = carrier_on_loopback(far::Network::tcp);
    link_endpoint_ = tcp::endpoints_of({RankId(1), carrier->address(), "", 0, 0}).front();
    const far::Contact contact{RankId(0), net::pack(peer_.endpoint.port, peer_.endpoint.address), "", kToPeer, kToLink};
    link_ = std::make_unique<far::Link>(std::move(carrier), std::vector{contact}, 5000ms, rank_);
  }
  // The peer first, so that the link does not wait for it.
  void TearDown() override { peer_.socket = {}; }
  static void greet(const RawConnection& link, const tcp::Greeting& greeting) {
    link.send(std::as_bytes(std::span(&greeting, 1)));
  }
  static void receive_greeting(const RawConnection& link, std::int32_t channel) {
    const tcp::Greeting expected{kToPeer, 1, channel};
    require(std::ranges::equal(link.receive(sizeof(expected)), std::as_bytes(std::span(&expected, 1))),
            "the link greets with its session, rank and channel");
  }
  [[nodiscard]] bool refuses(const tcp::Greeting& greeting) const {
    const RawConnection link(link_endpoint_);
    greet(link, greeting);
    return link.is_closed_by_other_side();
  }
  [[nodiscard]] RawConnection accept_for_messages() const {
    RawConnection link(peer_.socket);
    receive_greeting(link, kMessages);
    greet(link, {kToLink, 0, kMessages});
    return link;
  }
  [[nodiscard]] RawConnection connect_for_slices() const {
    RawConnection link(link_endpoint_);
    greet(link, {kToLink, 0, kSlices});
    receive_greeting(link, kSlices);
    return link;
  }
  static void send_packet(const RawConnection& link, far::Kind kind, const net::Bytes& bytes) {
    const far::Header header{.session = kToLink, .from = 0, .kind = kind};
    link.send(net::pack(std::as_bytes(std::span(&header, 1)), std::uint64_t{bytes.size()}, bytes));
  }
  void expect_no_fault() const { EXPECT_FALSE(rank_.fault()) << rank_.fault()->text; }
  [[nodiscard]] Fault await_fault() const {
    require(eventually([&] { return rank_.fault().has_value(); }), "there is a fault");
    return *rank_.fault();
  }

  HeldRank rank_{RankId(1), LocalTransport::anonymous_segments(2)};
  net::Listener peer_ = net::open_listener("lo", "");
  net::Endpoint link_endpoint_;
  std::unique_ptr<far::Link> link_;
};

TEST_F(TcpListener, RefusesConnectionsThatAreNotAwaited) {
  EXPECT_TRUE(refuses({kToLink + 1, 0, kSlices})) << "another session";
  EXPECT_TRUE(refuses({kToLink, 1, kSlices})) << "itself";
  EXPECT_TRUE(refuses({kToLink, 7, kSlices})) << "no rank";
  EXPECT_TRUE(refuses({kToLink, -1, kSlices}));
  EXPECT_TRUE(refuses({kToLink, 0, 2})) << "no channel";
  EXPECT_TRUE(refuses({kToLink, 0, -1}));
  EXPECT_TRUE(refuses({kToLink, 0, kMessages})) << "a channel on which it does not wait for others";
  const RawConnection garbage(link_endpoint_);
  garbage.send(std::vector<std::byte>(5000));
  EXPECT_TRUE(garbage.is_closed_by_other_side());
  const auto slices = connect_for_slices();
  EXPECT_TRUE(refuses({kToLink, 0, kSlices})) << "a second connection for a channel";
  expect_no_fault();
}

TEST_F(TcpListener, AcceptsAPeerAmongManySilentConnections) {
  std::vector<RawConnection> silent;
  for (int i = 0; i < 300; ++i) silent.emplace_back(link_endpoint_);
  const auto messages = accept_for_messages();
  const auto slices = connect_for_slices();
  expect_no_fault();
}

/// Until the result ends, this process may open only that many more descriptors.
std::shared_ptr<void> limit_descriptors(rlim_t num_more) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const Descriptor next(dup(STDERR_FILENO));
  const rlimit few{static_cast<rlim_t>(next.get()) + num_more, before.rlim_max};
  require(setrlimit(RLIMIT_NOFILE, &few) == 0, "the limit can be lowered");
  return {nullptr, [before](void*) { setrlimit(RLIMIT_NOFILE, &before); }};
}

TEST_F(TcpListener, AcceptsAPeerThoughConnectionsTakeAllDescriptors) {
  const auto messages = accept_for_messages();
  std::vector<Descriptor> sockets;  // of this process, too
  for (int i = 0; i < 40; ++i) sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto few = limit_descriptors(10);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(link_endpoint_.port);
  for (const Descriptor& each : sockets)
    ASSERT_EQ(::connect(each.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const RawConnection last([&] { return std::move(sockets.back()); });
  greet(last, {kToLink, 0, kSlices});
  receive_greeting(last, kSlices);
  expect_no_fault();
}

TEST_F(TcpListener, IsClosedOnceAllPeersAreConnected) {
  const auto slices = connect_for_slices();
  EXPECT_TRUE(is_listening(link_endpoint_));
  const auto messages = accept_for_messages();
  EXPECT_TRUE(eventually([&] { return !is_listening(link_endpoint_); }));
}

TEST(TcpCarrier, DoesNotListenWithoutPeers) {
  LocalTransport rank(RankId(0), LocalTransport::anonymous_segments(1));
  auto carrier = carrier_on_loopback(far::Network::tcp);
  const net::Endpoint listener = tcp::endpoints_of({RankId(0), carrier->address(), "", 0, 0}).front();
  const far::Link link(std::move(carrier), {}, 5000ms, rank);
  EXPECT_FALSE(is_listening(listener));
}

TEST_F(TcpListener, ClosesAConnectionWhoseSessionChanges) {
  const auto messages = accept_for_messages();
  const auto slices = connect_for_slices();
  slices.send(std::string(40, '\1'));
  EXPECT_EQ(await_fault().text, "rank 1 lost its connection to rank 0: a packet of another session or rank arrived");
}

// The rank has answered on the connection that the link began, and died before it began its own.
TEST_F(TcpListener, NoticesARankThatEndsHalfConnected) {
  (void)accept_for_messages();
  const Fault fault = await_fault();
  EXPECT_EQ(fault.code, ErrorCode::peer_lost);
  EXPECT_EQ(fault.culprit, RankId(0));
  EXPECT_EQ(fault.text, "rank 1 lost its connection to rank 0: it closed the connection");
}

// The link may notice a rail's reset before it has read the fault that explains it.
TEST_F(TcpListener, ReceivesTheLastMessagesOfALostRank) {
  const auto messages = accept_for_messages();
  auto slices = connect_for_slices();
  link_->slices().expect(RankId(0), 1, 8);
  rank_.is_held = true;
  send_packet(slices, far::Kind::slice, {});
  ASSERT_TRUE(eventually([&] { return rank_.num_arrivals > 0; }));
  const auto code = static_cast<std::int32_t>(ErrorCode::peer_failed);
  send_packet(messages, far::Kind::fault, net::pack(code, std::int32_t{0}, net::bytes_of("tripped.")));
  slices.reset();
  rank_.is_held = false;
  EXPECT_EQ(await_fault().text, "tripped.");
}

}  // namespace
}  // namespace shunt::test
