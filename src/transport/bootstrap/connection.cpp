#include "transport/bootstrap/connection.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "shunt/bootstrap.hpp"

namespace shunt::bootstrap {
namespace {

constexpr std::size_t kHeaderBytes = 2 * sizeof(std::uint32_t);
// A contribution with its round, or a piece of a result; longer ones are refused before there is memory for them.
constexpr std::size_t kMaxFrameBytes = Bootstrap::kMaxBytes + sizeof(std::uint32_t);

bool must_wait() { return net::blocked_or_lost() == net::Progress::blocked; }

}  // namespace

pollfd Connection::awaited() const {
  const short events = unsent_.empty() ? POLLIN : POLLIN | POLLOUT;
  return {socket_.get(), events, 0};
}

void Connection::send(std::span<const std::byte> bytes) {
  net::append(unsent_, bytes);
  flush();
}

void Connection::flush() {
  std::size_t num_sent = 0;
  while (num_sent < unsent_.size()) {
    const ssize_t taken = ::send(socket_.get(), unsent_.data() + num_sent, unsent_.size() - num_sent, MSG_NOSIGNAL);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && must_wait()) break;
    // The other side is gone, but may have said why; so the last word is left to receive().
    num_sent = taken < 0 ? unsent_.size() : num_sent + static_cast<std::size_t>(taken);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(num_sent));
}

std::optional<net::Bytes> Connection::receive(std::size_t num_bytes) {
  if (is_lost_) return std::nullopt;
  partial_.resize(num_bytes);
  const net::Progress progress = net::receive(socket_.get(), partial_, num_received_);
  is_lost_ = progress == net::Progress::ended || progress == net::Progress::lost;
  if (progress != net::Progress::done) return std::nullopt;
  num_received_ = 0;
  return std::exchange(partial_, {});
}

void Connection::end_sending() { (void)shutdown(socket_.get(), SHUT_WR); }

void Connection::discard() {
  std::array<std::byte, 65536> scrap;
  for (int i = 0; i < 16 && !is_lost_; ++i) {  // then it is another one's turn
    const ssize_t came = recv(socket_.get(), scrap.data(), scrap.size(), 0);
    if (came < 0 && errno == EINTR) continue;
    if (came < 0 && must_wait()) return;
    is_lost_ = came <= 0;
  }
}

FrameConnection::FrameConnection(Connection connection, const Handshake& handshake, Role own)
    : connection_(std::move(connection)),
      sent_{handshake.frame_key_of(own)},
      received_{handshake.frame_key_of(own == Role::coordinator ? Role::participant : Role::coordinator)} {}

Digest FrameConnection::Direction::mac(Header header, std::span<const std::byte> body) {
  net::Bytes text;
  text.reserve(sizeof(num_frames) + kHeaderBytes + body.size());
  net::append(text, num_frames++);
  net::append(text, static_cast<std::uint32_t>(header.kind));
  net::append(text, header.num_bytes);
  net::append(text, body);
  return hmac(key, text);
}

void FrameConnection::send(FrameKind kind, std::span<const std::byte> body) {
  const Header header{kind, static_cast<std::uint32_t>(body.size())};
  net::Bytes bytes;
  bytes.reserve(kHeaderBytes + body.size() + sizeof(Digest));
  net::append(bytes, static_cast<std::uint32_t>(header.kind));
  net::append(bytes, header.num_bytes);
  net::append(bytes, body);
  net::append(bytes, sent_.mac(header, body));
  connection_.send(bytes);
}

std::optional<Frame> FrameConnection::receive() {
  if (!header_) {
    const auto bytes = connection_.receive(kHeaderBytes);
    if (!bytes) return std::nullopt;
    net::ByteReader reader(*bytes);
    const auto kind = reader.take<std::uint32_t>();
    const auto num_bytes = reader.take<std::uint32_t>();
    if (kind >= kNumFrameKinds || num_bytes > kMaxFrameBytes) {
      connection_.hang_up();
      return std::nullopt;
    }
    header_ = Header{static_cast<FrameKind>(kind), num_bytes};
  }
  auto body = connection_.receive(header_->num_bytes + sizeof(Digest));
  if (!body) return std::nullopt;
  const Header header = *std::exchange(header_, std::nullopt);
  const auto mac = std::span(*body).last(sizeof(Digest));
  if (!equal(mac, received_.mac(header, std::span(*body).first(header.num_bytes)))) {
    connection_.hang_up();
    return std::nullopt;
  }
  body->resize(header.num_bytes);
  return Frame{header.kind, std::move(*body)};
}

}  // namespace shunt::bootstrap
