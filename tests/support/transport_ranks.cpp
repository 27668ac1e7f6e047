#include "support/transport_ranks.hpp"

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/bootstrap/rendezvous.hpp"
#include "transport/inproc/join.hpp"
#include "transport/join.hpp"
#include "transport/shm/launch.hpp"

namespace shunt::test {
namespace {

constexpr std::chrono::seconds kGuard{30};

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

void run_processes(std::int32_t num_ranks, const TransportBody& body, const RankOptions& options) {
  const auto run_process = [&](RankId rank, const std::string& job,
                               const std::function<void()>& joined) -> std::optional<shm::Failure> {
    Environment environment;
    environment.join = kGuard;
    environment.liveness = options.liveness;
    const auto ranks = bootstrap::join_rendezvous(bootstrap::on_one_machine(rank, num_ranks, job, environment.join));
    const auto end = join(*ranks, environment, Topology::single_node(num_ranks)).transport;
    joined();
    if (auto text = run_rank(*end, body)) return shm::Failure{rank, ErrorCode::peer_failed, *text, true};
    return std::nullopt;
  };
  for (const auto& failure : shm::launch(num_ranks, run_process, kGuard)) ADD_FAILURE() << failure.text;
}

/// The place of a Barrier's words.
struct Words {
  std::uint64_t offset;
  std::byte* data;
};

}  // namespace

void run_ranks(Backend backend, std::int32_t num_ranks, const TransportBody& body, const RankOptions& options) {
  switch (backend) {
    case Backend::inproc: return run_threads(inproc::join(num_ranks), body);
    case Backend::shm: return run_processes(num_ranks, body, options);
    case Backend::tcp: return run_threads(join_hosts(far::Network::tcp, num_ranks, options.liveness), body);
    case Backend::ucx: return run_threads(join_hosts(far::Network::ucx, num_ranks, options.liveness), body);
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

Barrier::Barrier(Transport& transport) : transport_(transport) {
  const auto num_ranks = static_cast<std::size_t>(transport.size());
  const std::size_t bytes = (num_ranks + 1) * sizeof(std::uint64_t);
  if (transport.rank() == RankId(0)) {
    own_ = transport.allocate(bytes);
    std::memset(own_.data, 0, bytes);
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
      send_value(transport, RankId(rank), Words{*transport.offset_of(own_.data, bytes), own_.data});
  }
  const auto words = value_of<Words>(receive(transport));
  // Simulated machines share an address space after all.
  const bool is_near = transport.host(RankId(0)) == transport.host(transport.rank());
  words_ =
      reinterpret_cast<std::uint64_t*>(is_near ? transport.peer_pointer(RankId(0), words.offset, bytes) : words.data);
  wait();  // before any other message can be taken for the offset
}

void Barrier::wait() {
  const std::atomic_ref<std::uint64_t> num_arrived(words_[0]);
  ++num_arrived;
  ++num_calls_;
  await(transport_, [&] { return num_arrived >= num_calls_ * static_cast<std::uint64_t>(transport_.size()); });
}

std::atomic_ref<std::uint64_t> Barrier::word(RankId rank) const {
  return std::atomic_ref<std::uint64_t>(words_[1 + rank.index()]);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Backend, std::int32_t>>& info) {
  constexpr const char* kNames[] = {"inproc", "shm", "tcp", "ucx"};
  return fmt::format("{}_{}", kNames[static_cast<int>(std::get<0>(info.param))], std::get<1>(info.param));
}

}  // namespace shunt::test
