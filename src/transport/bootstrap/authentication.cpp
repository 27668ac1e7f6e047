#include "transport/bootstrap/authentication.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "core/fail.hpp"

namespace shunt::bootstrap {

using net::append;
using net::Bytes;
using net::bytes_of;

namespace {

constexpr std::string_view kMagic = "shunt/bs";

}  // namespace

Nonce draw_nonce() {
  Nonce nonce{};
  // So few bytes come whole or not at all.
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) fail_errno("getrandom");
  return nonce;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

Digest hmac(std::span<const std::byte> key, std::span<const std::byte> text) {
  Digest digest{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(digest.data()), &length) == nullptr ||
      length != digest.size())
    fail(ErrorCode::system, "OpenSSL can't compute an HMAC-SHA256");
  return digest;
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Bytes encode(const Claim& claim) {
  Bytes bytes;
  append(bytes, bytes_of(kMagic));
  append(bytes, claim.version);
  append(bytes, claim.rank);
  append(bytes, claim.size);
  append(bytes, claim.number);
  append(bytes, claim.nonce);
  return bytes;
}

std::optional<Claim> decode_claim(std::span<const std::byte> bytes) {
  net::ByteReader reader(bytes);
  const auto magic = reader.take(kMagic.size());
  Claim claim;
  claim.version = reader.take<std::uint32_t>();
  claim.rank = reader.take<std::int32_t>();
  claim.size = reader.take<std::int32_t>();
  claim.number = reader.take<std::uint32_t>();
  claim.nonce = reader.take<Nonce>();
  if (!reader.ok() || !reader.at_end() || !std::ranges::equal(magic, bytes_of(kMagic))) return std::nullopt;
  return claim;
}

Handshake::Handshake(std::string token, const Claim& participant, const Claim& coordinator)
    : token_(std::move(token)), claims_(encode(participant)) {
  append(claims_, encode(coordinator));
}

Digest Handshake::derive(std::string_view purpose, Role role) const {
  Bytes text;
  append(text, bytes_of(fmt::format("shunt {} of the {}:", purpose,
                                    role == Role::coordinator ? "coordinator" : "participant")));
  append(text, claims_);
  return hmac(bytes_of(token_), text);
}

WorldKey::WorldKey(const std::string& secret, std::span<const Nonce> nonces) {
  Bytes text;
  append(text, bytes_of("shunt world:"));
  for (const Nonce& nonce : nonces) append(text, nonce);
  key_ = hmac(bytes_of(secret), text);
}

std::uint64_t WorldKey::session(RankId from, RankId to) const {
  Bytes text;
  append(text, bytes_of("session:"));
  append(text, from.value);
  append(text, to.value);
  const auto id = net::ByteReader(hmac(key_, text)).take<std::uint64_t>();
  return id == 0 ? 1 : id;
}

}  // namespace shunt::bootstrap
