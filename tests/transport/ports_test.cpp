#include "transport/net/ports.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "shunt/error.hpp"
#include "support/rendezvous_ranks.hpp"

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

}  // namespace
}  // namespace shunt::test
