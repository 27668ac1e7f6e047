// Runs a body on every rank of a bare transport, as threads or as processes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>

#include "support/loopback_ranks.hpp"
#include "support/require.hpp"
#include "transport/transport.hpp"

namespace shunt::test {

/// `tcp`, `ucx`: two simulated machines of threads, joined over the loopback interface.
enum class Backend { inproc, shm, tcp, ucx };

using TransportBody = std::function<void(Transport&)>;

/// Returns when all ranks have; what a rank throws is a failure of the running test.
void run_ranks(Backend backend, std::int32_t num_ranks, const TransportBody& body, std::chrono::milliseconds liveness);

/// Waits for the condition. Throws after some seconds, as a guard against hangs, and for a fault.
void await(Transport& transport, const std::function<bool()>& condition, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

/// Posts, again and again while the mailbox is full.
void send(Transport& transport, RankId peer, std::span<const std::byte> message);
/// The next message of any rank.
Message receive(Transport& transport);

template <class T>
void send_value(Transport& transport, RankId peer, const T& value) {
  send(transport, peer, std::as_bytes(std::span(&value, 1)));
}

template <class T>
T value_of(const Message& message) {
  require(message.bytes == sizeof(T), "the message has the length of the value");
  T value;
  std::memcpy(&value, message.data.data(), sizeof(T));
  return value;
}

/// A barrier that does not use the transport, but memory that all ranks of the test share.
class Barrier {
 public:
  explicit Barrier(Transport& transport) : transport_(transport) {}
  /// Returns once all ranks have called it as often as this one.
  void wait();
  /// One word per rank that all ranks can read and write, zero at first; for results that ranks compare.
  [[nodiscard]] static std::atomic<std::uint64_t>& word(RankId rank);

 private:
  Transport& transport_;
  std::uint64_t num_calls_ = 0;
};

/// The conformance suite, on every backend with 1, 2, 4 and 7 ranks.
class TransportTest : public ::testing::TestWithParam<std::tuple<Backend, std::int32_t>> {
 protected:
  void SetUp() override {
    if (backend() == Backend::ucx && !why_not(far::Network::ucx).empty()) GTEST_SKIP() << why_not(far::Network::ucx);
  }
  [[nodiscard]] Backend backend() const { return std::get<0>(GetParam()); }
  [[nodiscard]] std::int32_t num_ranks() const { return std::get<1>(GetParam()); }
  void run(const TransportBody& body, std::chrono::milliseconds liveness = std::chrono::seconds(5)) const {
    run_ranks(backend(), num_ranks(), body, liveness);
  }
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<Backend, std::int32_t>>& info);

#define SHUNT_ON_BACKENDS(suite, ...)                                                                         \
  INSTANTIATE_TEST_SUITE_P(Backends, suite,                                                                   \
                           ::testing::Combine(::testing::Values(__VA_ARGS__), ::testing::Values(1, 2, 4, 7)), \
                           ::shunt::test::name_of)
#define SHUNT_ON_ALL_BACKENDS(suite)                                                                                 \
  SHUNT_ON_BACKENDS(suite, ::shunt::test::Backend::inproc, ::shunt::test::Backend::shm, ::shunt::test::Backend::tcp, \
                    ::shunt::test::Backend::ucx)

}  // namespace shunt::test
