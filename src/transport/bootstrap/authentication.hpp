// Proofs that a rank knows the job's token, which itself never travels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shunt/ids.hpp"
#include "transport/net/bytes.hpp"

namespace shunt::bootstrap {

/// Drawn anew for every use, so that nothing recorded can be replayed.
using Nonce = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;

/// Throws Error(system).
Nonce draw_nonce();
/// As text, two digits a byte.
std::string hex(std::span<const std::byte> bytes);
/// HMAC-SHA256.
Digest hmac(std::span<const std::byte> key, std::span<const std::byte> text);
/// Takes equally long wherever they differ, so that time tells nobody how much of a forgery was right.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b);

constexpr std::uint32_t kProtocolVersion = 2;

/// What either side says of itself first; worth nothing before the proof.
struct Claim {
  std::uint32_t version = kProtocolVersion;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::uint32_t number = 0;  ///< of the job's worlds
  Nonce nonce{};  ///< of this connection; the coordinator draws another one for each, or a handshake could be replayed
};

constexpr std::size_t kClaimBytes = 8 + 4 * sizeof(std::uint32_t) + sizeof(Nonce);
net::Bytes encode(const Claim& claim);
/// Empty for what is no claim at all, such as another protocol's first bytes.
std::optional<Claim> decode_claim(std::span<const std::byte> bytes);

/// The one byte with which the coordinator answers a participant's proof. Its own proof follows `accepted`.
enum class Verdict : std::uint8_t { accepted = 1, refused = 2 };

enum class Role : std::uint8_t { coordinator, participant };

/// What both have claimed, and what follows from it for those who know the token.
class Handshake {
 public:
  Handshake(std::string token, const Claim& participant, const Claim& coordinator);

  [[nodiscard]] Digest proof_of(Role role) const { return derive("proof", role); }
  /// Of the frames that this role sends.
  [[nodiscard]] Digest frame_key_of(Role role) const { return derive("frames", role); }

 private:
  [[nodiscard]] Digest derive(std::string_view purpose, Role role) const;

  std::string token_;
  net::Bytes claims_;
};

/// What only the ranks of one world can derive, from the job's secret and what each of them drew.
class WorldKey {
 public:
  /// By rank.
  WorldKey(const std::string& secret, std::span<const Nonce> nonces);

  /// Says that a message belongs to this world, and from whom to whom it goes; never zero.
  [[nodiscard]] std::uint64_t session(RankId from, RankId to) const;
  /// The same on all ranks, and in no other world.
  [[nodiscard]] std::string token() const { return hex(hmac(key_, net::bytes_of("token:"))); }

 private:
  Digest key_;
};

}  // namespace shunt::bootstrap
