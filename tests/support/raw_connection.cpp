#include "support/raw_connection.hpp"

#include <fcntl.h>

#include <cerrno>

#include "support/eventually.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

constexpr std::chrono::seconds kLimit{30};

}  // namespace

RawConnection::RawConnection(const net::Endpoint& endpoint)
    : RawConnection([&] { return net::connect_to(endpoint, std::chrono::steady_clock::now() + kLimit).socket; }) {}

RawConnection::RawConnection(const Descriptor& listener)
    : RawConnection([&] { return net::accept_from(listener).socket; }) {}

RawConnection::RawConnection(const std::function<Descriptor()>& connect) {
  require(eventually([&] { return (socket_ = connect()).valid(); }), "the other side is there");
  require(fcntl(socket_.get(), F_SETFL, 0) == 0, "its calls may wait");
  const timeval limit{kLimit.count(), 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    setsockopt(socket_.get(), SOL_SOCKET, option, &limit, sizeof(limit));
}

void RawConnection::send(std::span<const std::byte> bytes) const {
  (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

net::Bytes RawConnection::receive(std::size_t num_bytes) const {
  net::Bytes bytes(num_bytes);
  const ssize_t came = recv(socket_.get(), bytes.data(), bytes.size(), MSG_WAITALL);
  require(came >= 0 || errno != EAGAIN, "the other side answers or hangs up");
  bytes.resize(came > 0 ? static_cast<std::size_t>(came) : 0);
  return bytes;
}

void RawConnection::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_ = Descriptor();
}

}  // namespace shunt::test
