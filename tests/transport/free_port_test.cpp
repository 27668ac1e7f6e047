#include "transport/ucx/free_port.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "core/fail.hpp"
#include "support/require.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::ucx {
namespace {

Descriptor take(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  test::require(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "it is free");
  return socket;
}

TEST(FreePort, IsSoughtOnceIfItWasNotThePort) {
  int num_calls = 0;
  EXPECT_THROW(listen_at_free_port("",
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
  listen_at_free_port("", [&](std::uint16_t port) {
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
  EXPECT_THROW(listen_at_free_port("",
                                   [&](std::uint16_t port) {
                                     others.push_back(take(port));
                                     fail(ErrorCode::system, "port {} is in use", port);
                                   }),
               Error);
}

}  // namespace
}  // namespace shunt::ucx
