#include "transport/tcp/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace shunt::tcp {

bool Connection::send_greeting(const Greeting& greeting) const {
  return ::send(fd(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting);
}

void Connection::begin(std::unique_ptr<far::Packet> packet) {
  packet_ = std::move(packet);
  sent_header_ = {packet_->header, packet_->bytes().size()};
  num_sent_ = 0;
}

IoStatus Connection::push() {
  const auto header = std::as_bytes(std::span(&sent_header_, 1));
  const auto bytes = packet_->bytes();
  while (num_sent_ < header.size() + bytes.size()) {
    const auto rest_of_header = header.subspan(std::min(num_sent_, header.size()));
    const auto rest = bytes.subspan(num_sent_ - std::min(num_sent_, header.size()));
    // sendmsg() only reads them.
    std::array<iovec, 2> pieces = {{{const_cast<std::byte*>(rest_of_header.data()), rest_of_header.size()},
                                    {const_cast<std::byte*>(rest.data()), rest.size()}}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t taken = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (taken >= 0)
      num_sent_ += static_cast<std::size_t>(taken);
    else if (errno != EINTR)
      return net::blocked_or_lost() == IoStatus::blocked ? IoStatus::blocked : lose(std::strerror(errno));
  }
  return IoStatus::done;
}

IoStatus Connection::pull(far::Receiver& receiver) {
  if (num_header_received_ < sizeof(header_)) {
    const IoStatus status = fill(std::as_writable_bytes(std::span(&header_, 1)), num_header_received_);
    if (status != IoStatus::done) return status;
    if (header_.packet.session != greeting_.session || header_.packet.from != greeting_.from)
      return lose("a packet of another session or rank arrived");
    num_body_received_ = 0;
    if (receiver.wants(header_.packet, header_.bytes))
      body_ = std::make_shared_for_overwrite<std::byte[]>(std::max<std::size_t>(header_.bytes, 1));
  }
  const IoStatus status =
      body_ ? fill({body_.get(), header_.bytes}, num_body_received_) : skip(header_.bytes, num_body_received_);
  if (status != IoStatus::done) return status;
  num_header_received_ = 0;
  if (const auto body = std::exchange(body_, nullptr))
    receiver.receive(header_.packet, {body.get(), header_.bytes}, body);
  return IoStatus::done;
}

IoStatus Connection::fill(std::span<std::byte> bytes, std::size_t& num_received) {
  const IoStatus status = net::receive(socket_.get(), bytes, num_received);
  if (status == IoStatus::lost) return lose(std::strerror(errno));
  if (status == IoStatus::ended && num_header_received_ > 0)
    return lose("it closed the connection in the middle of a message");
  return status;
}

// A limited number per call, so that other connections get their turn.
IoStatus Connection::skip(std::size_t bytes, std::size_t& num_received) {
  std::array<std::byte, 65536> discarded;
  const auto piece = std::span(discarded).first(std::min(discarded.size(), bytes - num_received));
  std::size_t num_discarded = 0;
  const IoStatus status = fill(piece, num_discarded);
  num_received += num_discarded;
  return status == IoStatus::done && num_received < bytes ? IoStatus::blocked : status;
}

IoStatus Connection::lose(std::string why) {
  why_lost_ = std::move(why);
  return IoStatus::lost;
}

}  // namespace shunt::tcp
