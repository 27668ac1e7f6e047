#include "transport/net/stream.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "transport/net/receive.hpp"

namespace shunt::net {
namespace {

bool must_wait() { return blocked_or_lost() == Progress::blocked; }

}  // namespace

pollfd Stream::awaited() const {
  const short events = unsent_.empty() ? POLLIN : POLLIN | POLLOUT;
  return {socket_.get(), events, 0};
}

void Stream::send(std::span<const std::byte> bytes) {
  append(unsent_, bytes);
  flush();
}

void Stream::flush() {
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

std::optional<Bytes> Stream::receive(std::size_t num_bytes) {
  if (is_lost_) return std::nullopt;
  partial_.resize(num_bytes);
  const Progress progress = net::receive(socket_.get(), partial_, num_received_);
  is_lost_ = progress == Progress::ended || progress == Progress::lost;
  if (progress != Progress::done) return std::nullopt;
  num_received_ = 0;
  return std::exchange(partial_, {});
}

void Stream::end_sending() { (void)shutdown(socket_.get(), SHUT_WR); }

void Stream::discard() {
  std::array<std::byte, 65536> scrap;
  for (int i = 0; i < 16 && !is_lost_; ++i) {  // then it is another one's turn
    const ssize_t came = recv(socket_.get(), scrap.data(), scrap.size(), 0);
    if (came < 0 && errno == EINTR) continue;
    if (came < 0 && must_wait()) return;
    is_lost_ = came <= 0;
  }
}

}  // namespace shunt::net
