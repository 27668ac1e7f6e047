#include "support/tampering_proxy.hpp"

#include <sys/socket.h>

#include <iterator>
#include <string>

#include "support/eventually.hpp"
#include "support/require.hpp"
#include "transport/bootstrap/connection.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

/// A frame whose MAC is wrong.
net::Bytes forge(bootstrap::FrameKind kind, const std::string& body) {
  return net::pack(kind, body, bootstrap::Digest{});
}

void send_all(const Descriptor& to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    pollfd entry = {to.get(), POLLOUT, 0};
    if (!wait_ready(std::span(&entry, 1), std::chrono::steady_clock::now() + 10s)) return;
    const ssize_t sent = send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return;
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

struct Received {
  net::Bytes bytes;
  bool is_over = false;
};

Received receive(const Descriptor& from, std::size_t most_bytes) {
  net::Bytes bytes(most_bytes);
  const ssize_t came = recv(from.get(), bytes.data(), bytes.size(), 0);
  const bool is_over = came == 0 || (came < 0 && errno != EAGAIN);
  bytes.resize(came > 0 ? static_cast<std::size_t>(came) : 0);
  return {std::move(bytes), is_over};
}

}  // namespace

TamperingProxy::TamperingProxy(const net::Endpoint& own, net::Endpoint coordinator, Tampering tampering,
                               std::size_t after_bytes)
    : coordinator_(std::move(coordinator)),
      tampering_(tampering),
      after_bytes_(after_bytes),
      listeners_(net::listen_at(own)),
      thread_([this] { run(); }) {}

TamperingProxy::~TamperingProxy() {
  stop_ = true;
  thread_.join();
}

std::vector<net::Bytes> TamperingProxy::recorded() {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

net::Bytes TamperingProxy::await_recording(std::size_t num_bytes) {
  net::Bytes found;
  require(eventually([&] {
            for (net::Bytes& bytes : recorded())
              if (bytes.size() >= num_bytes) found = std::move(bytes);
            return !found.empty();
          }),
          "the participant sends so much");
  return found;
}

void TamperingProxy::run() {
  while (!stop_) {
    std::vector<pollfd> entries;
    for (const Line& line : lines_)
      for (const Descriptor* end : {&line.participant, &line.coordinator}) entries.push_back({end->get(), POLLIN, 0});
    for (const Descriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
    if (!wait_ready(entries, std::chrono::steady_clock::now() + 10ms)) continue;
    auto entry = entries.begin();
    for (auto line = lines_.begin(); line != lines_.end();) {
      const bool participant_spoke = entry++->revents != 0;
      const bool coordinator_spoke = entry++->revents != 0;
      // Rank 0's last frame first: the participant may have hung up because of it.
      const bool lives =
          (!coordinator_spoke || carry_to_participant(*line)) && (!participant_spoke || carry_to_coordinator(*line));
      line = lives ? std::next(line) : lines_.erase(line);
    }
    for (const Descriptor& listener : listeners_)
      if (entry++->revents != 0) connect_through(net::accept_from(listener).socket);
  }
}

void TamperingProxy::connect_through(Descriptor participant) {
  // Hangs up on the participant while rank 0 is not there, as if no proxy listened.
  Descriptor coordinator = net::connect_to(coordinator_, std::chrono::steady_clock::now() + 1s).socket;
  if (!participant.valid() || !coordinator.valid()) return;
  const std::lock_guard lock(mutex_);
  lines_.push_back({std::move(participant), std::move(coordinator), recorded_.size()});
  recorded_.emplace_back();
}

bool TamperingProxy::carry_to_coordinator(Line& line) {
  // Not beyond the byte after which it tampers.
  const std::size_t most = line.num_bytes < after_bytes_ ? after_bytes_ - line.num_bytes : 65536;
  const auto [bytes, is_over] = receive(line.participant, most);
  if (!line.is_hijacked) send_all(line.coordinator, bytes);
  line.num_bytes += bytes.size();
  {
    const std::lock_guard lock(mutex_);
    net::append(recorded_[line.index], bytes);
  }
  if (line.index == 0 && line.num_bytes == after_bytes_ && !bytes.empty()) return tamper(line);
  return !is_over;
}

bool TamperingProxy::carry_to_participant(Line& line) {
  const auto [bytes, is_over] = receive(line.coordinator, 65536);
  if (line.participant.valid()) send_all(line.participant, bytes);
  return !is_over;
}

bool TamperingProxy::tamper(Line& line) const {
  switch (tampering_) {
    case Tampering::none: break;
    case Tampering::cut: return false;
    case Tampering::cut_unnoticed: line.participant = Descriptor(); break;
    case Tampering::forgery_to_coordinator:
      line.is_hijacked = true;
      send_all(line.coordinator, forge(bootstrap::FrameKind::contribution, "forged"));
      break;
    case Tampering::forgery_to_participant:
      send_all(line.participant, forge(bootstrap::FrameKind::failure, std::string(4, '\0') + "forged"));
      break;
  }
  return true;
}

}  // namespace shunt::test
