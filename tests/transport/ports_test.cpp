#include "transport/net/ports.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "core/fail.hpp"
#include "shunt/error.hpp"
#include "support/rendezvous_ranks.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

std::string range_of(std::uint16_t port) { return fmt::format("{}-{}", port, port); }

TEST(Ports, ThatAreReservedAreGivenToNobodyElse) {
  const Descriptor reserved = net::reserve_port("");
  const std::uint16_t port = net::port_of(reserved.get());
  ASSERT_GT(port, 0);
  EXPECT_THROW(net::reserve_port(range_of(port)), Error);
}

TEST(Ports, ThatAreReservedCanBeListenedAtAgainAndAgain) {
  const Descriptor reserved = net::reserve_port("");
  const std::uint16_t port = net::port_of(reserved.get());
  for (int i = 0; i < 3; ++i) {
    const auto listeners = net::listen_at({.address = "127.0.0.1", .port = port, .interface = ""});
    (void)Caller({.address = "127.0.0.1", .port = port, .interface = ""});
  }
}

TEST(Ports, OfARangeAreInIt) {
  std::uint16_t port = 0;
  {
    const Descriptor reserved = net::reserve_port("");
    port = net::port_of(reserved.get());
  }
  EXPECT_EQ(net::port_of(net::reserve_port(range_of(port)).get()), port);
}

TEST(Listeners, SayThatThisMachineHasNoSuchAddress) {
  for (const char* interface : {"no-such0", "192.0.2.1"}) {
    try {
      (void)net::open_listener(interface, "");
      FAIL() << "listens at " << interface;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(interface), std::string_view::npos) << error.what();
    }
  }
}

TEST(Ports, OfWhatIsNoRangeAreRefused) {
  for (const char* range : {"a", "5", "9-3", "0-3"}) EXPECT_THROW(net::reserve_port(range), Error) << range;
}

Descriptor take(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  require(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "it is free");
  return socket;
}

TEST(FreePort, IsSoughtOnceIfItWasNotThePort) {
  int num_calls = 0;
  EXPECT_THROW(net::listen_at_free_port("",
                                        [&](std::uint16_t) {
                                          ++num_calls;
                                          fail(ErrorCode::invalid_argument, "no such device");
                                        }),
               Error);
  EXPECT_EQ(num_calls, 1);
}

TEST(FreePort, IsSoughtAgainIfSomebodyWasFaster) {
  std::vector<Descriptor> others;
  std::uint16_t got = 0;
  net::listen_at_free_port("", [&](std::uint16_t port) {
    if (others.size() < 3) {
      others.push_back(take(port));
      fail(ErrorCode::system, "port {} is in use", port);
    }
    got = port;
  });
  EXPECT_NE(got, 0);
  EXPECT_EQ(others.size(), 3u);
}

TEST(FreePort, IsNotSoughtForEver) {
  std::vector<Descriptor> others;
  EXPECT_THROW(net::listen_at_free_port("",
                                        [&](std::uint16_t port) {
                                          others.push_back(take(port));
                                          fail(ErrorCode::system, "port {} is in use", port);
                                        }),
               Error);
}

}  // namespace
}  // namespace shunt::test
