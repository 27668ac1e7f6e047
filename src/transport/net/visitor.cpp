#include "transport/net/visitor.hpp"

#include <utility>

namespace shunt::net {

Visitor::Visitor(Descriptor socket, const Claim& own, Deadline patience)
    : own_(own), patience_(patience), stranger_(std::move(socket)) {}

void Visitor::shake_hands(const std::string& token) {
  if (!claim_) {
    const auto bytes = stranger_.receive(kClaimBytes);
    if (!bytes) return;
    claim_ = decode_claim(*bytes);
    if (!claim_) return stranger_.hang_up();
    stranger_.send(encode(own_));
  }
  if (const auto proof = stranger_.receive(sizeof(Digest))) hear_proof(token, *proof);
}

void Visitor::hear_proof(const std::string& token, std::span<const std::byte> proof) {
  const Handshake handshake(token, *claim_, own_);
  Bytes answer;
  if (!equal(proof, handshake.proof_of(Role::guest))) {
    is_refused_ = true;
    append(answer, static_cast<std::uint8_t>(Verdict::refused));
    stranger_.send(answer);
    return stranger_.hang_up();
  }
  append(answer, static_cast<std::uint8_t>(Verdict::welcome));
  append(answer, handshake.proof_of(Role::host));
  stranger_.send(answer);
  frames_.emplace(std::move(stranger_), handshake, Role::host);
}

}  // namespace shunt::net
