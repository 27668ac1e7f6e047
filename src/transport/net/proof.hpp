// Proofs that a rank knows the job's token, which itself never travels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "transport/net/bytes.hpp"
#include "transport/net/meeting.hpp"

namespace shunt::net {

using Digest = std::array<std::byte, 32>;

/// Throws Error(system).
Nonce draw_nonce();
/// HMAC-SHA256.
Digest hmac(std::span<const std::byte> key, std::span<const std::byte> text);
/// Takes equally long wherever they differ, so that time tells nobody how much of a forgery was right.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b);

constexpr std::uint32_t kProtocolVersion = 1;

/// What either side says of itself first. Nobody believes it before the proof.
struct Claim {
  std::uint32_t version = kProtocolVersion;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::uint32_t number = 0;
  Nonce nonce{};  ///< of this connection; rank 0 draws another one for each, or a handshake could be replayed
};

constexpr std::size_t kClaimBytes = 8 + 4 * sizeof(std::uint32_t) + sizeof(Nonce);
Bytes encode(const Claim& claim);
/// Empty for what is no claim at all, such as another program's greeting.
std::optional<Claim> decode_claim(std::span<const std::byte> bytes);

/// The one byte with which rank 0 answers a guest's proof. Rank 0's own proof follows the first.
enum class Verdict : std::uint8_t { welcome = 1, refused = 2 };

enum class Role : std::uint8_t { host, guest };

/// What both have claimed, and what follows from it for those who know the token.
class Handshake {
 public:
  Handshake(std::string token, const Claim& guest, const Claim& host);

  [[nodiscard]] Digest proof_of(Role role) const { return derive("proof", role); }
  /// Of the frames that this role sends.
  [[nodiscard]] Digest frame_key_of(Role role) const { return derive("frames", role); }

 private:
  [[nodiscard]] Digest derive(std::string_view purpose, Role role) const;

  std::string token_;
  Bytes claims_;
};

}  // namespace shunt::net
