// UCX's effects on a program that uses it.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "core/backend.hpp"
#include "support/child_process.hpp"
#include "support/require.hpp"
#include "transport/far/make_carrier.hpp"
#include "transport/net/ports.hpp"

namespace shunt::test {
namespace {

// UCX would print backtraces of crashes, and take a hangup for a question about its state.
TEST(Ucx, LeavesSignalsToTheProgram) {
  ChildProcess program([] {
    if (!load_backend("ucx").functions) return;
    const auto carrier = far::make_carrier(far::Network::ucx, {});
    for (const int number : {SIGHUP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      struct sigaction action {};
      require(sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_DFL, "the signal is the program's");
    }
  });
  expect_returned(program);
}

TEST(Ucx, ListensWithinItsRangeThoughNoVariableSaysSo) {
  ChildProcess program([] {
    if (!load_backend("ucx").functions) return;
    const std::uint16_t port = net::port_of(net::reserve_port("").get());
    Environment::Network options;
    options.devices = "lo";
    options.port_range = fmt::format("{}-{}", port, port);
    const auto carrier = far::make_carrier(far::Network::ucx, options);
    require(getenv("UCX_TCP_PORT_RANGE") == nullptr, "no variable is set");
    const auto connected = net::connect_to({.address = "127.0.0.1", .port = port},
                                           std::chrono::steady_clock::now() + std::chrono::seconds(5));
    require(connected.socket.valid(), "it listens there");
  });
  expect_returned(program);
}

}  // namespace
}  // namespace shunt::test
