#include "bench/shuffle/wire.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.hpp"
#include "shunt/environment.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::bench {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
constexpr std::chrono::seconds kLimit{60};

Deadline wire_deadline() { return std::chrono::steady_clock::now() + kLimit; }

/// The address of the listener: "address port".
std::string endpoint_of(const Descriptor& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  std::array<char, INET_ADDRSTRLEN> text{};
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      !inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()))
    fail_errno("can't get the address of a socket");
  return fmt::format("{} {}", text.data(), ntohs(address.sin_port));
}

bool is_v4(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return address.ss_family == AF_INET;
}

void wait_for(const Descriptor& socket, short events) {
  pollfd entry{socket.get(), events, 0};
  if (!wait_ready(std::span(&entry, 1), wire_deadline())) fail(ErrorCode::deadline, "wire: a peer does not respond");
}

Descriptor accept_one(const Descriptor& listener) {
  for (;;) {
    wait_for(listener, POLLIN);
    net::Accepted accepted = net::accept_from(listener);
    if (accepted.out_of_room) fail(ErrorCode::system, "wire: no file descriptor is left for a connection");
    // Otherwise the connection was closed before it was accepted.
    if (accepted.socket.valid()) return std::move(accepted.socket);
  }
}

/// The bytes moved by send() or recv(); 0 if the call would have blocked. Throws if the connection is broken.
std::uint64_t check(ssize_t bytes) {
  if (bytes == 0) fail(ErrorCode::peer_lost, "wire: a peer closed its connection");
  if (bytes > 0) return static_cast<std::uint64_t>(bytes);
  if (errno != EAGAIN && errno != EINTR) fail_errno("wire: a connection broke");
  return 0;
}

}  // namespace

Wire::Wire(World& world, const std::vector<std::uint64_t>& bytes_to) : out_(kChunkBytes), in_(kChunkBytes) {
  const auto self = world.rank().index();
  const auto matrix = world.all_gather(std::as_bytes(std::span(bytes_to)));
  for (std::size_t rank = 0; rank < matrix.size(); ++rank) {
    std::vector<std::uint64_t> theirs(bytes_to.size());
    std::memcpy(theirs.data(), matrix[rank].data(), std::min(matrix[rank].size(), theirs.size() * sizeof(theirs[0])));
    if (bytes_to[rank] + theirs[self] > 0 && rank != self)
      connections_.push_back({static_cast<std::int32_t>(rank), bytes_to[rank], theirs[self], Descriptor()});
  }

  std::vector<Descriptor> listeners = net::listen_at({"", 0, Environment::read().network.interface});
  std::erase_if(listeners, [](const Descriptor& listener) { return !is_v4(listener); });
  if (listeners.empty()) fail(ErrorCode::unsupported, "wire: no IPv4 address to listen at");
  const std::string mine = endpoint_of(listeners.front());
  std::vector<std::string> endpoints;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine.data(), mine.size()))))
    endpoints.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  connect(world.rank().value, endpoints, listeners);
  world.barrier();
}

// The lower rank of a pair connects and sends its number.
void Wire::connect(std::int32_t rank, const std::vector<std::string>& endpoints,
                   const std::vector<Descriptor>& listeners) {
  for (Connection& connection : connections_) {
    if (connection.peer < rank) continue;
    const std::string& endpoint = endpoints[static_cast<std::size_t>(connection.peer)];
    const auto space = endpoint.find(' ');
    auto connected = net::connect_to(
        {endpoint.substr(0, space), static_cast<std::uint16_t>(std::stoi(endpoint.substr(space + 1))), ""},
        wire_deadline());
    if (!connected.socket.valid()) fail(ErrorCode::system, "wire: can't reach {}: {}", endpoint, connected.why_not);
    connection.socket = std::move(connected.socket);
    wait_for(connection.socket, POLLOUT);
    if (check(send(connection.socket.get(), &rank, sizeof(rank), MSG_NOSIGNAL)) != sizeof(rank))
      fail(ErrorCode::system, "wire: can't send {} bytes over a new connection", sizeof(rank));
  }
  const auto num_lower = std::count_if(connections_.begin(), connections_.end(),
                                       [&](const Connection& connection) { return connection.peer < rank; });
  for (auto left = num_lower; left > 0; --left) {
    Descriptor socket = accept_one(listeners.front());
    wait_for(socket, POLLIN);
    std::int32_t peer = -1;
    const bool is_complete = check(recv(socket.get(), &peer, sizeof(peer), 0)) == sizeof(peer);
    const auto connection = std::ranges::find(connections_, peer, &Connection::peer);
    if (!is_complete || connection == connections_.end() || connection->socket.valid())
      fail(ErrorCode::mismatch, "wire: a process that is not a peer connected to rank {}", rank);
    connection->socket = std::move(socket);
  }
}

void Wire::move(Bytes sent, Bytes received) {
  struct Left {
    std::uint64_t to_send;
    std::uint64_t to_receive;
  };
  std::vector<Left> left;
  std::vector<pollfd> entries;
  for (const Connection& connection : connections_) {
    left.push_back({connection.*sent, connection.*received});
    entries.push_back({connection.socket.get(), 0, 0});
  }
  for (;;) {
    bool is_over = true;
    for (std::size_t i = 0; i < left.size(); ++i) {
      entries[i].events =
          static_cast<short>((left[i].to_send > 0 ? POLLOUT : 0) | (left[i].to_receive > 0 ? POLLIN : 0));
      if (entries[i].events == 0) entries[i].fd = -1;
      is_over &= entries[i].events == 0;
    }
    if (is_over) return;
    if (!wait_ready(entries, wire_deadline())) fail(ErrorCode::deadline, "wire: peers do not respond");
    for (std::size_t i = 0; i < left.size(); ++i) {
      const int socket = connections_[i].socket.get();
      if ((entries[i].revents & POLLOUT) != 0)
        left[i].to_send -= check(send(socket, out_.data(), std::min<std::uint64_t>(left[i].to_send, out_.size()),
                                      MSG_NOSIGNAL | MSG_DONTWAIT));
      if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        left[i].to_receive -=
            check(recv(socket, in_.data(), std::min<std::uint64_t>(left[i].to_receive, in_.size()), MSG_DONTWAIT));
    }
  }
}

}  // namespace shunt::bench
