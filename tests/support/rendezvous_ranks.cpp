#include "support/rendezvous_ranks.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <stdexcept>
#include <thread>

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

Deadline hang_guard() { return std::chrono::steady_clock::now() + 30s; }

bool wait_for(const Descriptor& socket, short events) {
  pollfd entry = {socket.get(), events, 0};
  return wait_ready(std::span(&entry, 1), hang_guard());
}

template <class SockAddr>
std::uint16_t bind_any_port(const Descriptor& socket, SockAddr address, std::uint16_t SockAddr::*port) {
  const int on = 1;
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(socket.get(), generic, length) != 0 || getsockname(socket.get(), generic, &length) != 0)
    return 0;
  return ntohs(address.*port);
}

}  // namespace

FreePort::FreePort(const std::string& address) {
  const bool is_v6 = address.find(':') != std::string::npos;
  reserved_ = Descriptor(socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (is_v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr);
    number_ = bind_any_port(reserved_, v6, &sockaddr_in6::sin6_port);
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    inet_pton(AF_INET, address.c_str(), &v4.sin_addr);
    number_ = bind_any_port(reserved_, v4, &sockaddr_in::sin_port);
  }
}

JoinOutcome join_and_gather(const std::function<std::unique_ptr<bootstrap::Rendezvous>()>& join,
                            const std::string& text, std::chrono::milliseconds limit) {
  try {
    const auto rendezvous = join();
    Gathered gathered{rendezvous->members(), {}};
    for (int round = 0; round < 2; ++round) {
      gathered.texts.clear();
      for (const auto& bytes : rendezvous->all_gather(net::bytes_of(text), limit))
        gathered.texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return {std::move(gathered), std::nullopt};
  } catch (const Error& error) {
    return {std::nullopt, error};
  }
}

RendezvousRank::RendezvousRank(const bootstrap::RendezvousOptions& options, const std::string& text)
    : outcome_(std::async(std::launch::async, [options, text] {
        return join_and_gather([&] { return std::make_unique<bootstrap::Rendezvous>(options); }, text, options.limit);
      })) {}

Gathered RendezvousRank::expect_joined() {
  JoinOutcome outcome = wait();
  if (!outcome.gathered) throw std::runtime_error(std::string("did not join: ") + outcome.error->what());
  return std::move(*outcome.gathered);
}

void RendezvousRank::expect_error(ErrorCode code, const std::string& words) {
  const JoinOutcome outcome = wait();
  ASSERT_TRUE(outcome.error) << "has joined, instead of: " << words;
  EXPECT_EQ(to_string(outcome.error->code()), to_string(code)) << outcome.error->what();
  EXPECT_THAT(outcome.error->what(), ::testing::HasSubstr(words));
}

bootstrap::RendezvousOptions RendezvousTest::options(std::int32_t rank, std::int32_t size) const {
  bootstrap::RendezvousOptions options;
  options.rank = RankId(rank);
  options.size = size;
  options.endpoint = {.address = address_, .port = port_.number(), .interface = address_};
  options.token = token_;
  options.number = number_;
  options.limit = limit_;
  return options;
}

Caller::Caller(const net::Endpoint& endpoint) {
  const Deadline guard = hang_guard();
  while (!socket_.valid() && std::chrono::steady_clock::now() < guard) {
    socket_ = std::move(net::connect_to(endpoint, guard).socket);
    if (!socket_.valid()) std::this_thread::sleep_for(1ms);
  }
  if (!socket_.valid()) throw std::runtime_error("nobody listens");
}

void Caller::send(std::span<const std::byte> bytes) {
  while (!bytes.empty() && wait_for(socket_, POLLOUT)) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return;  // rank 0 need not listen to the end
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

net::Bytes Caller::receive(std::size_t num_bytes) {
  net::Bytes bytes(num_bytes);
  std::size_t num_received = 0;
  while (num_received < num_bytes) {
    if (!wait_for(socket_, POLLIN)) throw std::runtime_error("rank 0 neither answers nor hangs up");
    const ssize_t came = recv(socket_.get(), bytes.data() + num_received, num_bytes - num_received, 0);
    if (came < 0 && errno == EAGAIN) continue;
    if (came <= 0) break;
    num_received += static_cast<std::size_t>(came);
  }
  bytes.resize(num_received);
  return bytes;
}

void Caller::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_ = Descriptor();
}

PuppetParticipant::PuppetParticipant(const bootstrap::RendezvousOptions& options, std::uint32_t version) {
  Caller caller(options.endpoint);
  const bootstrap::Claim own{.version = version,
                             .rank = options.rank.value,
                             .size = options.size,
                             .number = options.number,
                             .nonce = bootstrap::draw_nonce()};
  caller.send(encode(own));
  const auto coordinator = bootstrap::decode_claim(caller.receive(bootstrap::kClaimBytes));
  if (!coordinator) throw std::runtime_error("rank 0 claims nothing");
  const bootstrap::Handshake handshake(options.token, own, *coordinator);
  caller.send(handshake.proof_of(bootstrap::Role::participant));
  constexpr std::size_t kAnswerBytes = 1 + sizeof(bootstrap::Digest);
  if (caller.receive(kAnswerBytes).size() != kAnswerBytes)
    throw std::runtime_error("rank 0 does not accept the puppet");
  frames_.emplace(bootstrap::Connection(std::move(caller.socket())), handshake, bootstrap::Role::participant);
}

void PuppetParticipant::contribute(std::uint32_t round) {
  net::Bytes bytes;
  net::append(bytes, round);
  frames_->send(bootstrap::FrameKind::contribution, bytes);
}

std::optional<bootstrap::Frame> PuppetParticipant::receive() {
  for (;;) {
    if (auto frame = frames_->receive()) return frame;
    if (frames_->connection().is_lost()) return std::nullopt;
    if (!wait_for(frames_->connection().socket(), POLLIN)) throw std::runtime_error("rank 0 says nothing");
  }
}

std::optional<bootstrap::Frame> PuppetParticipant::receive_until(bootstrap::FrameKind kind) {
  auto frame = receive();
  while (frame && frame->kind != kind) frame = receive();
  return frame;
}

}  // namespace shunt::test
