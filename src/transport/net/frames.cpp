#include "transport/net/frames.hpp"

#include <utility>

namespace shunt::net {
namespace {

constexpr std::size_t kHeaderBytes = 2 * sizeof(std::uint32_t);

}  // namespace

FrameStream::FrameStream(Stream stream, const Handshake& handshake, Role own)
    : stream_(std::move(stream)),
      sent_{handshake.frame_key_of(own)},
      received_{handshake.frame_key_of(own == Role::host ? Role::guest : Role::host)} {}

Digest FrameStream::Direction::mac(Header header, std::span<const std::byte> body) {
  Bytes text;
  text.reserve(sizeof(num_frames) + kHeaderBytes + body.size());
  append(text, num_frames++);
  append(text, static_cast<std::uint32_t>(header.kind));
  append(text, header.num_bytes);
  append(text, body);
  return hmac(key, text);
}

void FrameStream::send(FrameKind kind, std::span<const std::byte> body) {
  const Header header{kind, static_cast<std::uint32_t>(body.size())};
  Bytes bytes;
  bytes.reserve(kHeaderBytes + body.size() + sizeof(Digest));
  append(bytes, static_cast<std::uint32_t>(header.kind));
  append(bytes, header.num_bytes);
  append(bytes, body);
  append(bytes, sent_.mac(header, body));
  stream_.send(bytes);
}

std::optional<Frame> FrameStream::receive() {
  if (!header_) {
    const auto bytes = stream_.receive(kHeaderBytes);
    if (!bytes) return std::nullopt;
    ByteReader reader(*bytes);
    const auto kind = reader.take<std::uint32_t>();
    const auto num_bytes = reader.take<std::uint32_t>();
    if (kind >= kNumFrameKinds || num_bytes > kMaxCardBytes) {
      stream_.hang_up();
      return std::nullopt;
    }
    header_ = Header{static_cast<FrameKind>(kind), num_bytes};
  }
  auto body = stream_.receive(header_->num_bytes + sizeof(Digest));
  if (!body) return std::nullopt;
  const Header header = *std::exchange(header_, std::nullopt);
  const auto mac = std::span(*body).last(sizeof(Digest));
  if (!equal(mac, received_.mac(header, std::span(*body).first(header.num_bytes)))) {
    stream_.hang_up();
    return std::nullopt;
  }
  body->resize(header.num_bytes);
  return Frame{header.kind, std::move(*body)};
}

}  // namespace shunt::net
