#include "transport/bootstrap/authentication.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "core/fail.hpp"

namespace shunt::bootstrap {

using net::Bytes;
using net::bytes_of;

namespace {

constexpr std::string_view kMagic = "shunt/bs";

}  // namespace

Nonce draw_nonce() {
  Nonce nonce{};
  // So few bytes are never returned in part.
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

Bytes encode(const Hello& hello) {
  return net::pack(bytes_of(kMagic), hello.version, hello.rank, hello.size, hello.number, hello.nonce);
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  std::array<char, kMagic.size()> magic;
  Hello hello;
  const bool ok = net::unpack(bytes, magic, hello.version, hello.rank, hello.size, hello.number, hello.nonce);
  return ok && std::ranges::equal(magic, kMagic) ? std::optional(hello) : std::nullopt;
}

Handshake::Handshake(std::string token, const Hello& participant, const Hello& coordinator)
    : token_(std::move(token)), hellos_(net::pack(encode(participant), encode(coordinator))) {}

Digest Handshake::derive(std::string_view purpose, Role role) const {
  const char* const name = role == Role::coordinator ? "coordinator" : "participant";
  return hmac(bytes_of(token_), net::pack(bytes_of(fmt::format("shunt {} of the {}:", purpose, name)), hellos_));
}

WorldKey::WorldKey(const std::string& secret, std::span<const Nonce> nonces) {
  Bytes text = net::pack(bytes_of("shunt world:"));
  for (const Nonce& nonce : nonces) net::append(text, nonce);
  key_ = hmac(bytes_of(secret), text);
}

std::uint64_t WorldKey::session(RankId from, RankId to) const {
  const Digest digest = hmac(key_, net::pack(bytes_of("session:"), from.value, to.value));
  const auto id = net::ByteReader(digest).take<std::uint64_t>();
  return id == 0 ? 1 : id;
}

}  // namespace shunt::bootstrap
