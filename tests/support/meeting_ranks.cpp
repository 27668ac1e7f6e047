#include "support/meeting_ranks.hpp"

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

MeetingRank::MeetingRank(const net::MeetingOptions& options, const std::string& card)
    : outcome_(std::async(std::launch::async, [options, card]() -> MeetingOutcome {
        try {
          return {net::meet(options, net::bytes_of(card)), std::nullopt};
        } catch (const Error& error) {
          return {std::nullopt, error};
        }
      })) {}

net::Meeting MeetingRank::expect_meeting() {
  MeetingOutcome outcome = wait();
  if (!outcome.meeting) throw std::runtime_error(std::string("did not meet: ") + outcome.error->what());
  return std::move(*outcome.meeting);
}

void MeetingRank::expect_error(ErrorCode code, const std::string& words) {
  const MeetingOutcome outcome = wait();
  ASSERT_TRUE(outcome.error) << "has met, instead of: " << words;
  EXPECT_EQ(to_string(outcome.error->code()), to_string(code)) << outcome.error->what();
  EXPECT_THAT(outcome.error->what(), ::testing::HasSubstr(words));
}

net::MeetingOptions MeetingTest::options(std::int32_t rank, std::int32_t size) const {
  return {.rank = RankId(rank),
          .size = size,
          .place = {.address = address_, .port = port_.number(), .interface = address_},
          .token = token_,
          .number = number_,
          .limit = limit_};
}

Caller::Caller(const net::MeetingPlace& place) {
  const Deadline guard = hang_guard();
  while (!socket_.valid() && std::chrono::steady_clock::now() < guard) {
    socket_ = std::move(net::connect_to(place, guard).socket);
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

PuppetGuest::PuppetGuest(const net::MeetingOptions& options, std::uint32_t version) {
  Caller caller(options.place);
  const net::Claim own{.version = version,
                       .rank = options.rank.value,
                       .size = options.size,
                       .number = options.number,
                       .nonce = net::draw_nonce()};
  caller.send(net::encode(own));
  const auto host = net::decode_claim(caller.receive(net::kClaimBytes));
  if (!host) throw std::runtime_error("rank 0 claims nothing");
  const net::Handshake handshake(options.token, own, *host);
  caller.send(handshake.proof_of(net::Role::guest));
  if (caller.receive(1 + sizeof(net::Digest)).size() != 1 + sizeof(net::Digest))
    throw std::runtime_error("rank 0 does not welcome the puppet");
  frames_.emplace(net::Stream(std::move(caller.socket())), handshake, net::Role::guest);
}

std::optional<net::Frame> PuppetGuest::receive() {
  for (;;) {
    if (auto frame = frames_->receive()) return frame;
    if (frames_->stream().is_lost()) return std::nullopt;
    if (!wait_for(frames_->stream().socket(), POLLIN)) throw std::runtime_error("rank 0 says nothing");
  }
}

std::optional<net::Frame> PuppetGuest::receive_until(net::FrameKind kind) {
  auto frame = receive();
  while (frame && frame->kind != kind) frame = receive();
  return frame;
}

}  // namespace shunt::test
