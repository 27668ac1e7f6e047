#include "transport/tcp/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace shunt::tcp {

void Connection::begin(std::unique_ptr<far::Packet> packet) {
  packet_ = std::move(packet);
  sent_frame_ = {packet_->header, packet_->bytes().size()};
  num_sent_ = 0;
}

Progress Connection::push() {
  const auto frame = std::as_bytes(std::span(&sent_frame_, 1));
  const auto bytes = packet_->bytes();
  while (num_sent_ < frame.size() + bytes.size()) {
    const auto rest_of_frame = frame.subspan(std::min(num_sent_, frame.size()));
    const auto rest = bytes.subspan(num_sent_ - std::min(num_sent_, frame.size()));
    // sendmsg() only reads them.
    std::array<iovec, 2> pieces = {{{const_cast<std::byte*>(rest_of_frame.data()), rest_of_frame.size()},
                                    {const_cast<std::byte*>(rest.data()), rest.size()}}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t taken = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (taken >= 0)
      num_sent_ += static_cast<std::size_t>(taken);
    else if (errno != EINTR)
      return net::blocked_or_lost() == Progress::blocked ? Progress::blocked : lose(std::strerror(errno));
  }
  return Progress::done;
}

Progress Connection::pull(far::Receiver& receiver) {
  if (num_frame_received_ < sizeof(frame_)) {
    const Progress progress = fill(std::as_writable_bytes(std::span(&frame_, 1)), num_frame_received_);
    if (progress != Progress::done) return progress;
    if (frame_.header.session != session_ || frame_.header.from != peer_.value)
      return lose("bytes of somebody else came through it");
    num_body_received_ = 0;
    if (receiver.wants(frame_.header, frame_.bytes))
      body_ = std::make_shared_for_overwrite<std::byte[]>(std::max<std::size_t>(frame_.bytes, 1));
  }
  const Progress progress =
      body_ ? fill({body_.get(), frame_.bytes}, num_body_received_) : skip(frame_.bytes, num_body_received_);
  if (progress != Progress::done) return progress;
  num_frame_received_ = 0;
  if (const auto body = std::exchange(body_, nullptr))
    receiver.receive(frame_.header, {body.get(), frame_.bytes}, body);
  return Progress::done;
}

Progress Connection::fill(std::span<std::byte> bytes, std::size_t& num_received) {
  const Progress progress = net::receive(socket_.get(), bytes, num_received);
  if (progress == Progress::lost) return lose(std::strerror(errno));
  if (progress == Progress::ended && num_frame_received_ > 0) return lose("it hung up in the middle of a message");
  return progress;
}

// However many there are: then it is another one's turn.
Progress Connection::skip(std::size_t bytes, std::size_t& num_received) {
  std::array<std::byte, 65536> scrap;
  const auto piece = std::span(scrap).first(std::min(scrap.size(), bytes - num_received));
  std::size_t num_scrapped = 0;
  const Progress progress = fill(piece, num_scrapped);
  num_received += num_scrapped;
  return progress == Progress::done && num_received < bytes ? Progress::blocked : progress;
}

Progress Connection::lose(std::string why) {
  why_lost_ = std::move(why);
  return Progress::lost;
}

}  // namespace shunt::tcp
