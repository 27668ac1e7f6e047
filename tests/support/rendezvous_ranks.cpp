#include "support/rendezvous_ranks.hpp"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <stdexcept>

#include "support/eventually.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

bool wait_for(const Descriptor& socket, short events) {
  pollfd entry = {socket.get(), events, 0};
  return wait_ready(std::span(&entry, 1), std::chrono::steady_clock::now() + std::chrono::seconds(30));
}

}  // namespace

RendezvousRank::RendezvousRank(std::function<std::unique_ptr<bootstrap::Rendezvous>()> join, const std::string& text,
                               std::chrono::milliseconds limit)
    : outcome_(std::async(std::launch::async, [join = std::move(join), text, limit]() -> JoinOutcome {
        try {
          const auto rendezvous = join();
          JoinOutcome outcome{rendezvous->members(), {}, {}};
          for (int round = 0; round < 2; ++round) {
            outcome.texts.clear();
            for (const auto& bytes : rendezvous->all_gather(net::bytes_of(text), limit))
              outcome.texts.push_back(net::text_of(bytes));
          }
          return outcome;
        } catch (const Error& error) {
          return {{}, {}, error};
        }
      })) {}

RendezvousRank::RendezvousRank(const bootstrap::RendezvousOptions& options, const std::string& text)
    : RendezvousRank([options] { return bootstrap::join_rendezvous(options); }, text, options.limit) {}

JoinOutcome RendezvousRank::expect_joined() {
  JoinOutcome outcome = outcome_.get();
  if (outcome.error) throw std::runtime_error(std::string("did not join: ") + outcome.error->what());
  return outcome;
}

void RendezvousRank::expect_error(ErrorCode code, const std::string& words) {
  const JoinOutcome outcome = outcome_.get();
  ASSERT_TRUE(outcome.error) << "has joined, instead of: " << words;
  EXPECT_EQ(to_string(outcome.error->code()), to_string(code)) << outcome.error->what();
  EXPECT_THAT(outcome.error->what(), ::testing::HasSubstr(words));
}

bootstrap::RendezvousOptions RendezvousTest::options(std::int32_t rank, std::int32_t size) const {
  bootstrap::RendezvousOptions options;
  options.rank = RankId(rank);
  options.size = size;
  options.endpoint = {.address = address_, .port = net::port_of(port_.get())};
  if (!address_.starts_with('@')) options.endpoint.interface = address_;
  options.token = token_;
  options.limit = limit_;
  return options;
}

RawConnection::RawConnection(const net::Endpoint& endpoint) {
  const auto try_again = [&] {
    socket_ = std::move(net::connect_to(endpoint, std::chrono::steady_clock::now() + std::chrono::seconds(30)).socket);
    return socket_.valid();
  };
  require(eventually(try_again), "rank 0 listens");
}

void RawConnection::send(std::span<const std::byte> bytes) {
  while (!bytes.empty() && wait_for(socket_, POLLOUT)) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return;  // rank 0 need not read to the end
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

net::Bytes RawConnection::receive(std::size_t num_bytes) {
  net::Bytes bytes(num_bytes);
  std::size_t num_received = 0;
  while (net::receive(socket_.get(), bytes, num_received) == net::IoStatus::blocked)
    require(wait_for(socket_, POLLIN), "rank 0 answers or hangs up");
  bytes.resize(num_received);
  return bytes;
}

void RawConnection::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_ = Descriptor();
}

ScriptedParticipant::ScriptedParticipant(const bootstrap::RendezvousOptions& options, std::uint32_t version) {
  RawConnection connection(options.endpoint);
  const bootstrap::Hello own{version, options.rank.value, options.size, options.number, bootstrap::draw_nonce()};
  connection.send(encode(own));
  const auto coordinator = bootstrap::decode_hello(connection.receive(bootstrap::kHelloBytes));
  require(coordinator.has_value(), "rank 0 sends its hello");
  const bootstrap::Handshake handshake(options.token, own, *coordinator);
  connection.send(handshake.proof_of(bootstrap::Role::participant));
  constexpr std::size_t kAnswerBytes = 1 + sizeof(bootstrap::Digest);
  require(connection.receive(kAnswerBytes).size() == kAnswerBytes, "rank 0 accepts the proof");
  connection_.emplace(std::move(connection.socket()));
  connection_->begin_frames(handshake, bootstrap::Role::participant);
}

void ScriptedParticipant::contribute(std::uint32_t round) {
  connection_->send_frame(bootstrap::FrameKind::contribution, net::pack(round));
}

std::optional<bootstrap::Frame> ScriptedParticipant::receive() {
  for (;;) {
    if (auto frame = connection_->receive_frame()) return frame;
    if (connection_->is_lost()) return std::nullopt;
    require(wait_for(connection_->socket(), POLLIN), "rank 0 sends something");
  }
}

std::optional<bootstrap::Frame> ScriptedParticipant::receive_until(bootstrap::FrameKind kind) {
  auto frame = receive();
  while (frame && frame->kind != kind) frame = receive();
  return frame;
}

}  // namespace shunt::test
