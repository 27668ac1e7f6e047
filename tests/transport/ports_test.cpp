#include "transport/net/ports.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/fail.hpp"
#include "shunt/error.hpp"
#include "support/raw_connection.hpp"

namespace shunt::test {
namespace {

std::string range_of(std::uint16_t port) { return fmt::format("{}-{}", port, port); }

TEST(Ports, ThatAreReservedAreNotGivenAwayButCanBeListenedAtAgainAndAgain) {
  const Descriptor reserved = net::reserve_port("");
  const std::uint16_t port = net::port_of(reserved.get());
  ASSERT_GT(port, 0);
  EXPECT_THROW(net::reserve_port(range_of(port)), Error);
  for (int i = 0; i < 3; ++i) {
    const auto listeners = net::listen_at({.address = "127.0.0.1", .port = port, .interface = ""});
    (void)RawConnection({.address = "127.0.0.1", .port = port, .interface = ""});
  }
}

TEST(Ports, OfARangeAreInIt) {
  const std::uint16_t port = net::port_of(net::reserve_port("").get());
  EXPECT_EQ(net::port_of(net::reserve_port(range_of(port)).get()), port);
}

TEST(Ports, OutsideAnyRangeAreRefused) {
  for (const char* range : {"a", "5", "9-3", "0-3"}) EXPECT_THROW(net::reserve_port(range), Error) << range;
}

/// Calls a listen() that throws until `num_failures` other sockets have taken its ports. Returns the last port.
std::uint16_t listen_after_failures(std::size_t num_failures) {
  std::vector<Descriptor> others;
  std::uint16_t last = 0;
  net::listen_at_free_port("", [&](std::uint16_t port) {
    last = port;
    if (others.size() == num_failures) return;
    others.push_back(net::reserve_port(range_of(port)));
    fail(ErrorCode::system, "port {} is in use", port);
  });
  return last;
}

TEST(FreePort, IsSoughtOnceIfTheErrorWasNotThePorts) {
  int num_calls = 0;
  const auto listen = [&](std::uint16_t) {
    ++num_calls;
    fail(ErrorCode::invalid_argument, "no such device");
  };
  EXPECT_THROW(net::listen_at_free_port("", listen), Error);
  EXPECT_EQ(num_calls, 1);
}

TEST(FreePort, IsSoughtAgainIfAnotherSocketTookIt) { EXPECT_NE(listen_after_failures(3), 0); }

TEST(FreePort, IsSoughtALimitedNumberOfTimes) { EXPECT_THROW(listen_after_failures(1000), Error); }

}  // namespace
}  // namespace shunt::test
