// What is particular to the carrier over TCP: strangers at its door, and its rails.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support/link_pair.hpp"
#include "support/require.hpp"
#include "transport/bootstrap/connection.hpp"
#include "transport/net/sockets.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/tcp/introduction.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

net::Connected knock_at(const net::Endpoint& door) {
  return net::connect_to(door, std::chrono::steady_clock::now() + 5s);
}

/// Says it at the door, and whether the other side hangs up.
bool is_hung_up_on(const net::Endpoint& door, std::span<const std::byte> said) {
  bootstrap::Connection stranger(knock_at(door).socket);
  require(stranger.socket().valid(), "somebody listens");
  stranger.send(said);
  for (const auto guard = std::chrono::steady_clock::now() + 5s; std::chrono::steady_clock::now() < guard;) {
    if (stranger.receive(1) || stranger.is_lost()) return stranger.is_lost();
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

/// Rank 1's link, which awaits rank 0: it connects for messages by itself, rank 0 has to connect for slices.
class TcpDoor : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kToHost = 5, kToGuest = 6;
  static constexpr std::int32_t kMessages = 0, kSlices = 1;

  void SetUp() override {
    auto carrier = carrier_on_loopback(far::Network::tcp);
    door_ = tcp::endpoints_of({RankId(1), carrier->address(), "", 0, 0}).front();
    net::Bytes address;
    net::append(address, guest_.endpoint);
    const far::Contact contact{RankId(0), address, "", kToGuest, kToHost};
    FarLink::Listener listener = heard_.listener();
    listener.on_arrival = [this] {
      ++num_arrivals_;
      while (is_held_) std::this_thread::sleep_for(1ms);
    };
    link_ = std::make_unique<far::Link>(
        std::move(carrier), far::LinkOptions{.rank = RankId(1), .size = 2, .contacts = {contact}, .liveness = 5000ms},
        std::move(listener));
  }
  // First, so that the link does not wait for it.
  void TearDown() override { guest_.socket = {}; }
  [[nodiscard]] bool refuses(const tcp::Greeting& greeting) const {
    return is_hung_up_on(door_, std::as_bytes(std::span(&greeting, 1)));
  }
  static void hear(tcp::Introduction& link, std::int32_t channel) {
    while (link.hear() == tcp::Progress::blocked) std::this_thread::sleep_for(1ms);
    require(link.heard() == tcp::Greeting{kToGuest, 1, channel}, "the link says who it is");
  }
  [[nodiscard]] tcp::Introduction receive_for_messages() const {
    net::Accepted accepted;
    while (!accepted.socket.valid()) accepted = net::accept_from(guest_.socket);
    tcp::Introduction link(std::move(accepted.socket));
    hear(link, kMessages);
    require(link.say({kToHost, 0, kMessages}), "the link listens");
    return link;
  }
  [[nodiscard]] tcp::Introduction enter_for_slices() const {
    tcp::Introduction link(knock_at(door_).socket);
    require(link.say({kToHost, 0, kSlices}), "the link listens");
    hear(link, kSlices);
    return link;
  }
  void expect_no_fault() const { EXPECT_FALSE(heard_.fault()) << heard_.fault()->text; }
  [[nodiscard]] Fault await_fault() const {
    const auto guard = std::chrono::steady_clock::now() + 5s;
    while (!heard_.fault()) require(std::chrono::steady_clock::now() < guard, "there is a fault");
    return *heard_.fault();
  }

  std::atomic<int> num_arrivals_ = 0;
  std::atomic<bool> is_held_ = false;  // the link's thread, at the next arrival
  LinkListener heard_;
  net::Listener guest_ = net::open_listener("lo", "");
  net::Endpoint door_;
  std::unique_ptr<far::Link> link_;
};

TEST_F(TcpDoor, IsShutInTheFaceOfStrangers) {
  EXPECT_TRUE(refuses({kToHost + 1, 0, kSlices})) << "another session";
  EXPECT_TRUE(refuses({kToHost, 1, kSlices})) << "itself";
  EXPECT_TRUE(refuses({kToHost, 7, kSlices})) << "no rank";
  EXPECT_TRUE(refuses({kToHost, -1, kSlices}));
  EXPECT_TRUE(refuses({kToHost, 0, 2})) << "no channel";
  EXPECT_TRUE(refuses({kToHost, 0, -1}));
  EXPECT_TRUE(refuses({kToHost, 0, kMessages})) << "a channel on which it does not wait for others";
  EXPECT_TRUE(is_hung_up_on(door_, std::vector<std::byte>(5000))) << "garbage";
  expect_no_fault();
}

TEST_F(TcpDoor, IsOpenHoweverManyStandThereInSilence) {
  std::vector<net::Connected> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(knock_at(door_));
  const auto messages = receive_for_messages();
  const auto slices = enter_for_slices();
  expect_no_fault();
}

/// While it lives this process may open only so many more descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t num_more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const Descriptor next(dup(STDERR_FILENO));
    const rlimit few{static_cast<rlim_t>(next.get()) + num_more, before_.rlim_max};
    require(setrlimit(RLIMIT_NOFILE, &few) == 0, "the limit can be lowered");
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(TcpDoor, StaysOpenThoughStrangersTakeAllDescriptors) {
  const auto messages = receive_for_messages();
  std::vector<Descriptor> sockets;  // of this process, too
  for (int i = 0; i < 40; ++i) sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const FewDescriptors few(10);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(door_.port);
  for (const Descriptor& each : sockets)
    ASSERT_EQ(::connect(each.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  tcp::Introduction last(std::move(sockets.back()));
  ASSERT_TRUE(last.say({kToHost, 0, kSlices}));
  hear(last, kSlices);
  expect_no_fault();
}

TEST_F(TcpDoor, LetsNobodyInTwice) {
  const auto slices = enter_for_slices();
  EXPECT_TRUE(refuses({kToHost, 0, kSlices}));
  expect_no_fault();
}

TEST_F(TcpDoor, IsGoneOnceAllHaveCome) {
  const auto slices = enter_for_slices();
  EXPECT_TRUE(knock_at(door_).socket.valid());
  const auto messages = receive_for_messages();
  const auto guard = std::chrono::steady_clock::now() + 5s;
  while (knock_at(door_).socket.valid()) ASSERT_LT(std::chrono::steady_clock::now(), guard);
}

TEST(TcpCarrier, DoesNotListenForNobody) {
  LinkListener heard;
  auto carrier = carrier_on_loopback(far::Network::tcp);
  const net::Endpoint door = tcp::endpoints_of({RankId(0), carrier->address(), "", 0, 0}).front();
  const far::Link link(std::move(carrier), far::LinkOptions{.rank = RankId(0), .size = 1, .contacts = {}},
                       heard.listener());
  EXPECT_FALSE(knock_at(door).socket.valid());
}

TEST_F(TcpDoor, ClosesAConnectionOnWhichSomebodyElseSpeaks) {
  const auto messages = receive_for_messages();
  const auto slices = enter_for_slices();
  const std::vector<std::byte> frame(40, std::byte{1});
  ASSERT_EQ(::send(slices.fd(), frame.data(), frame.size(), MSG_NOSIGNAL), 40);
  EXPECT_EQ(await_fault().text, "rank 1 lost its connection to rank 0: bytes of somebody else came through it");
}

// It has answered on the connection that the link began, and died before it began its own.
TEST_F(TcpDoor, FindsOutThatARankIsGoneBeforeItCame) {
  (void)receive_for_messages();
  const Fault fault = await_fault();
  EXPECT_EQ(fault.code, ErrorCode::peer_lost);
  EXPECT_EQ(fault.culprit, RankId(0));
  EXPECT_EQ(fault.text, "rank 1 lost its connection to rank 0: it hung up");
}

// A reset rail may not swallow why it was reset, though the link hears of the reset first.
TEST_F(TcpDoor, HearsTheLastWordsOfALostRank) {
  struct {
    far::Header header;
    std::uint64_t bytes;
    std::int32_t code, culprit;
    char text[8];
  } const last_words{{.session = kToHost, .from = 0, .kind = far::Kind::fault},
                     16,
                     static_cast<std::int32_t>(ErrorCode::peer_failed),
                     0,
                     {'t', 'r', 'i', 'p', 'p', 'e', 'd', '.'}};
  struct {
    far::Header header;
    std::uint64_t bytes;
  } const slice{{.session = kToHost, .from = 0, .kind = far::Kind::slice}, 0};
  const auto messages = receive_for_messages();
  auto slices = std::make_optional(enter_for_slices());
  link_->slices().expect(RankId(0), 1, 8);
  is_held_ = true;
  ASSERT_EQ(::send(slices->fd(), &slice, sizeof(slice), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(slice)));
  while (num_arrivals_ == 0) std::this_thread::sleep_for(1ms);
  ASSERT_EQ(::send(messages.fd(), &last_words, sizeof(last_words), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(last_words)));
  const linger at_once{1, 0};
  ASSERT_EQ(setsockopt(slices->fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  slices.reset();
  is_held_ = false;
  EXPECT_EQ(await_fault().text, "tripped.");
}

}  // namespace
}  // namespace shunt::test
