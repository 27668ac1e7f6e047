#include "transport/net/proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "core/fail.hpp"

namespace shunt::net {
namespace {

constexpr std::string_view kMagic = "shunt/mt";

}  // namespace

Nonce draw_nonce() {
  Nonce nonce{};
  // So few bytes come whole or not at all.
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) fail_errno("getrandom");
  return nonce;
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
  ByteReader reader(bytes);
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

Handshake::Handshake(std::string token, const Claim& guest, const Claim& host)
    : token_(std::move(token)), claims_(encode(guest)) {
  append(claims_, encode(host));
}

Digest Handshake::derive(std::string_view purpose, Role role) const {
  Bytes text;
  append(text, bytes_of(fmt::format("shunt {} of the {}:", purpose, role == Role::host ? "host" : "guest")));
  append(text, claims_);
  return hmac(bytes_of(token_), text);
}

}  // namespace shunt::net
