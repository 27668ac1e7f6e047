#include "transport/net/sockets.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/comma_list.hpp"
#include "core/fail.hpp"
#include "transport/net/ports.hpp"

namespace shunt::net {
namespace {

constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

// Connections that wait before accept_many(). Unauthenticated ones use kernel memory, so they are few.
constexpr int kSmallBacklog = 16;

// An address that swallows packets may not keep a rank from trying the next one.
constexpr std::chrono::seconds kConnectLimit{3};

std::string with_port_text(std::string_view host, std::string_view port) {
  const bool is_v6 = host.find(':') != host.npos;
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  Address() = default;
  Address(const sockaddr* address, socklen_t length_) : length(length_) { std::memcpy(&storage, address, length_); }

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }

  [[nodiscard]] Address with_port(std::uint16_t port) const {
    Address result = *this;
    if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&result.storage)->sin_port = htons(port);
    if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_port = htons(port);
    return result;
  }

  [[nodiscard]] std::uint16_t port() const {
    if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
    if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
    return 0;
  }

  /// Empty where it has none.
  [[nodiscard]] std::string host() const {
    std::array<char, NI_MAXHOST> host{};
    if (is_local() || getnameinfo(get(), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
    return host.data();
  }

  [[nodiscard]] std::string text() const {
    if (is_local()) return "a process of this machine";
    const std::string known = host();
    return known.empty() ? "an unknown address" : with_port_text(known, std::to_string(port()));
  }

  [[nodiscard]] bool is_local() const { return family() == AF_UNIX; }
  /// A leading zero byte keeps it out of the file system.
  static Address local(std::string_view name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t kept = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), kept);
    return {reinterpret_cast<const sockaddr*>(&address),
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kept)};
  }
};

std::optional<Address> end_of(int socket, decltype(getpeername)& which) {
  Address address;
  address.length = sizeof(address.storage);
  if (which(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return std::nullopt;
  return address;
}

struct Resolved {
  std::vector<Address> addresses;
  std::string why_not;
  bool is_unknown = false;
};

Resolved resolve(const std::string& name, int flags) {
  if (name.starts_with('@')) return {{Address::local(name.substr(1))}, ""};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(name.c_str(), nullptr, &hints, &found); code != 0)
    return {
        {}, code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code), code == EAI_NONAME || code == EAI_NODATA};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  Resolved resolved;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
    resolved.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  return resolved;
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// The interfaces' addresses that `is_wanted(entry)`, but for link-local ones, whose meaning differs per link.
template <class IsWanted>
std::vector<Address> addresses_of_interfaces(IsWanted is_wanted) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) fail_errno("can't list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::vector<Address> addresses;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || is_link_local(entry->ifa_addr) || !is_wanted(*entry)) continue;
    if (entry->ifa_addr->sa_family == AF_INET) addresses.emplace_back(entry->ifa_addr, sizeof(sockaddr_in));
    if (entry->ifa_addr->sa_family == AF_INET6) addresses.emplace_back(entry->ifa_addr, sizeof(sockaddr_in6));
  }
  return addresses;
}

/// The addresses of an interface, or a numeric address.
std::vector<Address> addresses_of_interface(const std::string& name) {
  auto addresses = addresses_of_interfaces([&](const ifaddrs& entry) { return name == entry.ifa_name; });
  return addresses.empty() ? resolve(name, AI_NUMERICHOST | AI_PASSIVE).addresses : addresses;
}

void set_option(const Descriptor& socket, int level, int option, int value) {
  if (setsockopt(socket.get(), level, option, &value, sizeof(value)) != 0)
    fail_errno("can't set option {} of a socket", option);
}

void send_at_once(const Descriptor& socket) {
  const int on = 1;
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails if the other side has hung up
}

/// None, with the reason in errno, if this machine does not have the address, or not yet, or if it is taken.
Descriptor try_to_listen(const Address& address, bool also_v4, int backlog) {
  Descriptor listener(socket(address.family(), kType, 0));
  if (!listener.valid() && errno == EAFNOSUPPORT) return {};
  if (!listener.valid()) fail_errno("can't open a socket");
  // The job's next world may follow at once, while the kernel still remembers connections of this one.
  if (!address.is_local()) set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(listener, IPPROTO_IPV6, IPV6_V6ONLY, also_v4 ? 0 : 1);
  if (bind(listener.get(), address.get(), address.length) != 0 || listen(listener.get(), backlog) != 0) {
    if (errno == EADDRNOTAVAIL || errno == EADDRINUSE) return {};
    fail_errno("can't listen at {}", address.text());
  }
  return listener;
}

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

/// The kernel may connect a socket to itself, while no socket listens at a port that it gives to clients.
bool is_connected_to_itself(const Descriptor& socket) {
  const auto own = end_of(socket.get(), getsockname);
  const auto other = end_of(socket.get(), getpeername);
  return own && other && !own->is_local() && own->text() == other->text();
}

Connected begin_to_connect(const Address& address, const std::optional<Address>& from) {
  Descriptor connecting(socket(address.family(), kType, 0));
  if (!connecting.valid() && errno != EAFNOSUPPORT) fail_errno("can't open a socket");
  if (!connecting.valid() || (from && bind(connecting.get(), from->get(), from->length) != 0) ||
      (connect(connecting.get(), address.get(), address.length) != 0 && errno != EINPROGRESS)) {
    const int cause = errno;
    return {.why_not = address.text() + ": " + std::strerror(cause), .is_busy = cause == EAGAIN || cause == EINTR};
  }
  if (address.is_local() && !is_of_this_user(connecting)) return {.why_not = "another user listens there"};
  return {.socket = std::move(connecting)};
}

/// The first of these from which one can connect to the other.
std::optional<Address> like(const Address& other, const std::vector<Address>& addresses) {
  for (const Address& address : addresses)
    if (address.family() == other.family()) return address;
  return std::nullopt;
}

Connected connect_to_address(const Address& address, const std::string& interface, Deadline deadline) {
  Connected connected =
      begin_to_connect(address, interface.empty() ? std::nullopt : like(address, addresses_of_interface(interface)));
  if (!connected.socket.valid()) return connected;
  pollfd entry = {connected.socket.get(), POLLOUT, 0};
  const bool is_decided =
      wait_ready(std::span(&entry, 1), std::min(deadline, std::chrono::steady_clock::now() + kConnectLimit));
  const std::string why_not = is_decided ? why_not_connected(connected.socket) : std::strerror(ETIMEDOUT);
  if (!why_not.empty()) return {.why_not = address.text() + ": " + why_not};
  return connected;
}

}  // namespace

std::string describe(const Endpoint& endpoint) {
  return endpoint.address.starts_with('@') ? endpoint.address
                                           : with_port_text(endpoint.address, std::to_string(endpoint.port));
}

std::uint16_t port_of(int socket) { return end_of(socket, getsockname).value_or(Address()).port(); }

std::vector<Descriptor> listen_at(const Endpoint& endpoint, int backlog) {
  std::vector<Descriptor> listeners;
  bool is_taken = false;
  const auto listen_on = [&](const Address& address, bool also_v4) {
    Descriptor listener = try_to_listen(address.with_port(endpoint.port), also_v4, backlog);
    is_taken = is_taken || (!listener.valid() && errno == EADDRINUSE);
    if (listener.valid()) listeners.push_back(std::move(listener));
    return !listeners.empty();
  };
  const auto any = [](const char* number) { return resolve(number, AI_NUMERICHOST).addresses.front(); };
  if (endpoint.address.starts_with('@'))
    listen_on(Address::local(endpoint.address.substr(1)), false);
  else if (endpoint.interface.empty())
    (void)(listen_on(any("::"), true) || is_taken || listen_on(any("0.0.0.0"), false));
  else
    for (const Address& address : addresses_of_interface(endpoint.interface)) listen_on(address, false);
  if (is_taken) return {};
  if (listeners.empty())
    fail(ErrorCode::invalid_argument, "can't listen at '{}': this machine has no such interface or address",
         endpoint.interface);
  return listeners;
}

Accepted accept_from(const Descriptor& listener) {
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    if (errno == EBADF || errno == EINVAL) fail_errno("can't accept a connection");
    // Everything else concerns that one connection, which is gone already.
    return {{}, errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM};
  }
  if (const auto own = end_of(socket.get(), getsockname); own && own->is_local() && !is_of_this_user(socket)) return {};
  send_at_once(socket);
  return {std::move(socket), false};
}

std::string peer_name(const Descriptor& socket) {
  const auto address = end_of(socket.get(), getpeername);
  return address ? address->text() : "a closed connection";
}

std::string own_address(const Descriptor& socket) {
  const auto address = end_of(socket.get(), getsockname);
  return address ? address->host() : "";
}

Listener open_listener(const std::string& interface, const std::string& port_range) {
  for (const std::uint16_t port : ports_of(port_range)) {
    std::vector<Descriptor> listeners = listen_at({.port = port, .interface = interface}, kSmallBacklog);
    if (listeners.empty()) continue;
    Descriptor& first = listeners.front();
    return {{interface.empty() ? "" : own_address(first), port_of(first.get()), interface}, std::move(first)};
  }
  fail(ErrorCode::system, "all ports of {} are in use", port_range);
}

Listener open_local_listener(const std::string& address) {
  Descriptor listener = try_to_listen(Address::local(address.substr(1)), false, kSmallBacklog);
  if (!listener.valid()) fail_errno("can't listen as '{}'", address);
  return {{.address = address}, std::move(listener)};
}

void accept_many(const Listener& listener) {
  if (listen(listener.socket.get(), SOMAXCONN) != 0) fail_errno("can't listen at {}", describe(listener.endpoint));
}

IoStatus receive(int socket, std::span<std::byte> bytes, std::size_t& num_received) {
  while (num_received < bytes.size()) {
    const auto rest = bytes.subspan(num_received);
    const ssize_t came = recv(socket, rest.data(), rest.size(), 0);
    if (came == 0) return IoStatus::ended;
    if (came > 0)
      num_received += static_cast<std::size_t>(came);
    else if (errno != EINTR)
      return blocked_or_lost();
  }
  return IoStatus::done;
}

IoStatus blocked_or_lost() { return errno == EAGAIN || errno == EWOULDBLOCK ? IoStatus::blocked : IoStatus::lost; }

bool is_loopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.") || address.starts_with("::ffff:127.");
}

std::vector<std::string> own_addresses(const std::string& interface) {
  std::vector<Address> addresses = addresses_of_interfaces([&](const ifaddrs& entry) {
    const bool is_reachable = (entry.ifa_flags & IFF_LOOPBACK) == 0 && (entry.ifa_flags & IFF_RUNNING) != 0;
    return is_reachable && (interface.empty() || interface == entry.ifa_name);
  });
  if (addresses.empty() && !interface.empty()) addresses = resolve(interface, AI_NUMERICHOST).addresses;
  std::vector<std::string> numbers;
  for (const Address& address : addresses) numbers.push_back(address.host());
  return numbers;
}

Connected begin_to_connect(const Endpoint& endpoint, const std::string& from) {
  const Resolved resolved = resolve(endpoint.address, AI_NUMERICHOST);
  if (resolved.addresses.empty()) return {.why_not = resolved.why_not, .is_unknown = resolved.is_unknown};
  const Address address = resolved.addresses.front().with_port(endpoint.port);
  return begin_to_connect(address,
                          from.empty() ? std::nullopt : like(address, resolve(from, AI_NUMERICHOST).addresses));
}

std::string why_not_connected(const Descriptor& socket) {
  int cause = 0;
  socklen_t length = sizeof(cause);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &cause, &length) != 0) cause = errno;
  if (cause == 0 && is_connected_to_itself(socket)) cause = ECONNREFUSED;
  if (cause == 0) send_at_once(socket);
  return cause == 0 ? "" : std::strerror(cause);
}

Connected connect_to(const Endpoint& endpoint, Deadline deadline) {
  Connected last;
  bool is_unknown = true;
  for (const std::string& name : items_of(endpoint.address)) {
    const Resolved resolved = resolve(name, 0);
    is_unknown = is_unknown && resolved.is_unknown;
    if (resolved.addresses.empty()) last.why_not = resolved.why_not;
    for (const Address& address : resolved.addresses) {
      last = connect_to_address(address.with_port(endpoint.port), endpoint.interface, deadline);
      if (last.socket.valid()) return last;
    }
  }
  last.is_unknown = is_unknown;
  return last;
}

}  // namespace shunt::net
