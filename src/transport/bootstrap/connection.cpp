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
    if (taken < 0 && net::blocked_or_lost() == net::IoStatus::blocked) break;
    // The other side is gone; receive() may still find a frame with the reason.
    num_sent = taken < 0 ? unsent_.size() : num_sent + static_cast<std::size_t>(taken);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(num_sent));
}

net::IoStatus Connection::fill(std::span<std::byte> bytes, std::size_t& num_received) {
  const net::IoStatus status = net::receive(socket_.get(), bytes, num_received);
  is_lost_ = is_lost_ || status == net::IoStatus::ended || status == net::IoStatus::lost;
  return status;
}

std::optional<net::Bytes> Connection::receive(std::size_t num_bytes) {
  if (is_lost_) return std::nullopt;
  partial_.resize(num_bytes);
  if (fill(partial_, num_received_) != net::IoStatus::done) return std::nullopt;
  num_received_ = 0;
  return std::exchange(partial_, {});
}

void Connection::end_sending() { (void)shutdown(socket_.get(), SHUT_WR); }

void Connection::discard() {
  std::array<std::byte, 65536> discarded;
  std::size_t num_discarded = 0;
  // Limited, so that other connections get their turn.
  for (int i = 0; i < 16 && fill(discarded, num_discarded) == net::IoStatus::done; ++i) num_discarded = 0;
}

void Connection::begin_frames(const Handshake& handshake, Role own) {
  sent_ = Direction{handshake.frame_key_of(own)};
  received_ = Direction{handshake.frame_key_of(own == Role::coordinator ? Role::participant : Role::coordinator)};
}

Digest Connection::Direction::mac(Header header, std::span<const std::byte> body) {
  return hmac(key, net::pack(num_frames++, header.kind, header.num_bytes, body));
}

void Connection::send_frame(FrameKind kind, std::span<const std::byte> body) {
  const Header header{kind, static_cast<std::uint32_t>(body.size())};
  send(net::pack(header.kind, header.num_bytes, body, sent_->mac(header, body)));
}

std::optional<Frame> Connection::receive_frame() {
  if (!header_) {
    const auto bytes = receive(kHeaderBytes);
    if (!bytes) return std::nullopt;
    header_.emplace();
    (void)net::unpack(*bytes, header_->kind, header_->num_bytes);
    if (header_->kind > FrameKind::failure || header_->num_bytes > kMaxFrameBytes) {
      hang_up();
      return std::nullopt;
    }
  }
  auto body = receive(header_->num_bytes + sizeof(Digest));
  if (!body) return std::nullopt;
  const Header header = *std::exchange(header_, std::nullopt);
  const auto mac = std::span(*body).last(sizeof(Digest));
  if (!equal(mac, received_->mac(header, std::span(*body).first(header.num_bytes)))) {
    hang_up();
    return std::nullopt;
  }
  body->resize(header.num_bytes);
  return Frame{header.kind, std::move(*body)};
}

}  // namespace shunt::bootstrap
