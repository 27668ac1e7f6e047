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

/// New for every use, so that nothing recorded can be replayed.
using Nonce = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;

/// Throws Error(system).
Nonce draw_nonce();
/// As text, two digits a byte.
std::string hex(std::span<const std::byte> bytes);
/// HMAC-SHA256.
Digest hmac(std::span<const std::byte> key, std::span<const std::byte> text);
/// In time that does not depend on where they differ, so that timing does not help a forger.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b);

constexpr std::uint32_t kProtocolVersion = 2;

/// The first message of either side; not trusted before the proof.
struct Hello {
  std::uint32_t version = kProtocolVersion;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::uint32_t number = 0;  ///< of the job's worlds
  Nonce nonce{};             ///< new for each connection, or a handshake could be replayed
};

constexpr std::size_t kHelloBytes = 8 + 4 * sizeof(std::uint32_t) + sizeof(Nonce);
net::Bytes encode(const Hello& hello);
/// Empty for what is no hello, such as another protocol's first bytes.
std::optional<Hello> decode_hello(std::span<const std::byte> bytes);

/// The one byte with which the coordinator answers a participant's proof. Its own proof follows `accepted`.
enum class Verdict : std::uint8_t { accepted = 1, refused = 2 };

enum class Role : std::uint8_t { coordinator, participant };

/// Keys and proofs that follow from both hellos and the token.
class Handshake {
 public:
  Handshake(std::string token, const Hello& participant, const Hello& coordinator);

  [[nodiscard]] Digest proof_of(Role role) const { return derive("proof", role); }
  /// The key for the MACs of the frames that this role sends.
  [[nodiscard]] Digest frame_key_of(Role role) const { return derive("frames", role); }

 private:
  [[nodiscard]] Digest derive(std::string_view purpose, Role role) const;

  std::string token_;
  net::Bytes hellos_;
};

/// The key of one world, from the job's secret and all ranks' nonces.
class WorldKey {
 public:
  /// nonces[rank].
  WorldKey(const std::string& secret, std::span<const Nonce> nonces);

  /// Identifies this world and the direction of a message; never zero.
  [[nodiscard]] std::uint64_t session(RankId from, RankId to) const;
  /// The same on all ranks, and in no other world.
  [[nodiscard]] std::string token() const { return hex(hmac(key_, net::bytes_of("token:"))); }

 private:
  Digest key_;
};

}  // namespace shunt::bootstrap
