#include "support/rendezvous_ranks.hpp"

#include "support/raw_connection.hpp"
#include "support/require.hpp"

namespace shunt::test {

RendezvousRank::RendezvousRank(std::function<std::unique_ptr<bootstrap::Rendezvous>()> join, const std::string& text,
                               std::chrono::milliseconds limit)
    : outcome_(std::async(std::launch::async, [join = std::move(join), text, limit]() -> JoinOutcome {
        const auto rendezvous = join();
        JoinOutcome outcome{rendezvous->members(), {}};
        for (int round = 0; round < 2; ++round) {
          outcome.texts.clear();
          for (const auto& bytes : rendezvous->all_gather(net::bytes_of(text), limit))
            outcome.texts.push_back(net::text_of(bytes));
        }
        return outcome;
      })) {}

RendezvousRank::RendezvousRank(const bootstrap::RendezvousOptions& options, const std::string& text)
    : RendezvousRank([options] { return bootstrap::join_rendezvous(options); }, text, options.limit) {}

bootstrap::RendezvousOptions RendezvousTest::options(std::int32_t rank, std::int32_t size) const {
  const std::string interface = address_.starts_with('@') ? "" : address_;
  return {.rank = RankId(rank),
          .size = size,
          .endpoint = {address_, net::port_of(port_.get()), interface},
          .token = token_,
          .limit = limit_};
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
  auto frame = connection_->receive_frame();
  require(frame || connection_->is_lost(), "rank 0 sends something or hangs up");
  return frame;
}

std::optional<bootstrap::Frame> ScriptedParticipant::receive_until(bootstrap::FrameKind kind) {
  auto frame = receive();
  while (frame && frame->kind != kind) frame = receive();
  return frame;
}

}  // namespace shunt::test
