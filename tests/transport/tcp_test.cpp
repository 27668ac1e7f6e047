// What is particular to the carrier over TCP: strangers at its door, and its rails.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "support/link_pair.hpp"
#include "support/require.hpp"
#include "transport/net/stream.hpp"
#include "transport/net/tcp.hpp"
#include "transport/tcp/introduction.hpp"
#include "transport/tcp/places.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

net::MeetingPlace door_of(std::span<const std::byte> address) {
  return tcp::decode_places(address, "127.0.0.1").front();
}

net::Connected knock_at(const net::MeetingPlace& door) {
  return net::connect_to(door, std::chrono::steady_clock::now() + 5s);
}

/// Says it at the door, and whether the other side hangs up.
bool is_hung_up_on(const net::MeetingPlace& door, std::span<const std::byte> said) {
  net::Stream stranger(knock_at(door).socket);
  require(stranger.socket().valid(), "somebody listens");
  stranger.send(said);
  for (const auto guard = std::chrono::steady_clock::now() + 5s; std::chrono::steady_clock::now() < guard;) {
    if (stranger.receive(1) || stranger.is_lost()) return stranger.is_lost();
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

/// A link that waits for rank 0, which is not there yet.
class TcpDoor : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kToHost = 5, kToGuest = 6;

  void SetUp() override {
    auto carrier = carrier_on_loopback(far::Network::tcp);
    door_ = door_of(carrier->address());
    const far::Contact contact{RankId(0), guest_->address(), "127.0.0.1", kToGuest, kToHost};
    link_ = std::make_unique<far::Link>(
        std::move(carrier), far::LinkOptions{.rank = RankId(1), .size = 2, .contacts = {contact}, .liveness = 5000ms},
        heard_.listener());
  }
  [[nodiscard]] bool refuses(const tcp::Greeting& greeting) const {
    return is_hung_up_on(door_, std::as_bytes(std::span(&greeting, 1)));
  }
  /// Returns the connection on which the link has answered as it should.
  [[nodiscard]] tcp::Introduction enter(std::int32_t channel) const {
    tcp::Introduction guest(knock_at(door_).socket);
    require(guest.say({kToHost, 0, channel}), "somebody listens");
    while (guest.hear() == tcp::Introduction::Progress::blocked) std::this_thread::sleep_for(1ms);
    require(guest.heard() == tcp::Greeting{kToGuest, 1, channel}, "the link says who it is");
    return guest;
  }

  LinkListener heard_;
  std::unique_ptr<far::Carrier> guest_ = carrier_on_loopback(far::Network::tcp);
  net::MeetingPlace door_;
  std::unique_ptr<far::Link> link_;
};

TEST_F(TcpDoor, IsShutInTheFaceOfStrangers) {
  EXPECT_TRUE(refuses({kToHost + 1, 0, 0})) << "another session";
  EXPECT_TRUE(refuses({kToHost, 1, 0})) << "itself";
  EXPECT_TRUE(refuses({kToHost, 7, 0})) << "no rank";
  EXPECT_TRUE(refuses({kToHost, -1, 0}));
  EXPECT_TRUE(refuses({kToHost, 0, 2})) << "no channel";
  EXPECT_TRUE(refuses({kToHost, 0, -1}));
  EXPECT_TRUE(is_hung_up_on(door_, std::vector<std::byte>(5000))) << "garbage";
  EXPECT_FALSE(heard_.fault()) << heard_.fault()->text;
}

TEST_F(TcpDoor, IsOpenHoweverManyStandThereInSilence) {
  std::vector<net::Connected> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(knock_at(door_));
  const auto messages = enter(0);
  const auto slices = enter(1);
  EXPECT_FALSE(heard_.fault()) << heard_.fault()->text;
}

TEST_F(TcpDoor, LetsNobodyInTwice) {
  const auto messages = enter(0);
  EXPECT_TRUE(refuses({kToHost, 0, 0}));
  EXPECT_FALSE(heard_.fault()) << heard_.fault()->text;
}

TEST_F(TcpDoor, IsGoneOnceAllHaveCome) {
  const auto messages = enter(0);
  EXPECT_TRUE(knock_at(door_).socket.valid());
  const auto slices = enter(1);
  const auto guard = std::chrono::steady_clock::now() + 5s;
  while (knock_at(door_).socket.valid()) ASSERT_LT(std::chrono::steady_clock::now(), guard);
}

TEST_F(TcpDoor, ClosesAConnectionOnWhichSomebodyElseSpeaks) {
  const auto messages = enter(0);
  const auto slices = enter(1);
  const std::vector<std::byte> frame(40, std::byte{1});
  ASSERT_EQ(::send(slices.fd(), frame.data(), frame.size(), MSG_NOSIGNAL), 40);
  const auto guard = std::chrono::steady_clock::now() + 5s;
  while (!heard_.fault()) ASSERT_LT(std::chrono::steady_clock::now(), guard);
  EXPECT_EQ(heard_.fault()->text, "rank 1 lost its connection to rank 0: bytes of somebody else came through it");
}

}  // namespace
}  // namespace shunt::test
