#include "support/transport_ranks.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "support/child_process.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/inproc/join.hpp"
#include "transport/join.hpp"
#include "transport/shm/launch.hpp"

namespace shunt::test {
namespace {

constexpr std::chrono::seconds kGuard{30};

/// Of the Barriers of the test that is running.
struct SharedWords {
  std::atomic<std::uint64_t> num_arrived;
  std::array<std::atomic<std::uint64_t>, 8> of_ranks;
};
std::optional<SharedAcrossForks<SharedWords>> shared_words;

/// Why the body failed; nothing: it did not. Reports the failure, so that peers don't wait for this rank.
std::optional<std::string> run_rank(Transport& transport, const TransportBody& body) {
  try {
    body(transport);
    return std::nullopt;
  } catch (const std::exception& error) {
    const auto text = fmt::format("rank {}: {}", transport.rank().value, error.what());
    transport.report(ErrorCode::peer_failed, transport.rank(), text);
    return text;
  }
}

void run_threads(const std::vector<std::shared_ptr<Transport>>& ends, const TransportBody& body) {
  std::vector<std::jthread> threads;
  for (const auto& end : ends)
    threads.emplace_back([&body, end] {
      if (const auto failure = run_rank(*end, body)) ADD_FAILURE() << *failure;
    });
}

void run_processes(std::int32_t num_ranks, const TransportBody& body, std::chrono::milliseconds liveness) {
  const auto run_process = [&](RankId rank, const std::string& job,
                               const std::function<void()>& joined) -> std::optional<shm::Failure> {
    Environment environment;
    environment.join = kGuard;
    environment.liveness = liveness;
    const auto ranks = bootstrap::join_rendezvous(bootstrap::on_one_machine(rank, num_ranks, job, environment.join));
    const auto end = join(*ranks, environment, Topology::single_node(num_ranks)).transport;
    joined();
    if (auto text = run_rank(*end, body)) return shm::Failure{rank, ErrorCode::peer_failed, *text, true};
    return std::nullopt;
  };
  for (const auto& failure : shm::launch(num_ranks, run_process, kGuard)) ADD_FAILURE() << failure.text;
}

}  // namespace

void run_ranks(Backend backend, std::int32_t num_ranks, const TransportBody& body, std::chrono::milliseconds liveness) {
  shared_words.emplace();
  switch (backend) {
    case Backend::inproc: return run_threads(inproc::join(num_ranks), body);
    case Backend::shm: return run_processes(num_ranks, body, liveness);
    case Backend::tcp: return run_threads(join_hosts(far::Network::tcp, num_ranks, liveness), body);
    case Backend::ucx: return run_threads(join_hosts(far::Network::ucx, num_ranks, liveness), body);
  }
}

void await(Transport& transport, const std::function<bool()>& condition, const char* file, int line) {
  const auto deadline = std::chrono::steady_clock::now() + kGuard;
  for (;;) {
    const std::uint32_t seen = transport.observe();
    if (condition()) return;
    if (const auto fault = transport.fault()) throw std::runtime_error("a fault: " + fault->text);
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error(fmt::format("{}:{}: waited in vain", file, line));
    transport.sleep(seen, std::chrono::milliseconds(1));
  }
}

void send(Transport& transport, RankId peer, std::span<const std::byte> message) {
  await(transport, [&] { return transport.post(peer, message) == Post::posted; });
}

Message receive(Transport& transport) {
  Message message;
  await(transport, [&] { return transport.poll(message); });
  return message;
}

void Barrier::wait() {
  ++(*shared_words)->num_arrived;
  ++num_calls_;
  await(transport_,
        [&] { return (*shared_words)->num_arrived >= num_calls_ * static_cast<std::uint64_t>(transport_.size()); });
}

std::atomic<std::uint64_t>& Barrier::word(RankId rank) { return (*shared_words)->of_ranks[rank.index()]; }

std::string name_of(const ::testing::TestParamInfo<std::tuple<Backend, std::int32_t>>& info) {
  constexpr const char* kNames[] = {"inproc", "shm", "tcp", "ucx"};
  return fmt::format("{}_{}", kNames[static_cast<int>(std::get<0>(info.param))], std::get<1>(info.param));
}

}  // namespace shunt::test
