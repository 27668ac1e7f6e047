// Packets over UCX's active messages.
#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/build.hpp"
#include "core/fail.hpp"
#include "transport/net/ports.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::ucx {
namespace {

constexpr unsigned kActiveMessage = 0;
constexpr int kProgressAtATime = 64;
constexpr std::chrono::milliseconds kCloseLimit{2000};

/// Throws Error(system) that names the failed step.
void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) fail(ErrorCode::system, "UCX can't {}: {}", what, ucs_status_string(status));
}

bool is_listening(int socket) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0;
}

bool is_in_progress(ucs_status_ptr_t request) {
  return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
}

/// Whether an error of connecting is the peer's, not this rank's.
bool is_of_peer(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_REJECTED:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT: return true;
    default: return false;
  }
}

/// Arrival buffers of UCX that other threads have freed. Outlives the carrier as long as a slice does.
class Releases {
 public:
  explicit Releases(std::shared_ptr<Wake> wake) : wake_(std::move(wake)) {}

  void add(void* data) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(data);
    }
    wake_->ring();
  }
  std::vector<void*> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(free_, {});
  }

 private:
  std::shared_ptr<Wake> wake_;
  std::mutex mutex_;
  std::vector<void*> free_;
};

class Carrier final : public far::Carrier {
 public:
  explicit Carrier(const Environment::Network& options) {
    net::listen_at_free_port(options.port_range, [&](std::uint16_t port) {
      port_ = port;
      start(options);
    });
  }
  ~Carrier() override {
    Carrier::close();
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }

  [[nodiscard]] std::vector<std::byte> address() const override {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "give its address");
    const auto* begin = reinterpret_cast<const std::byte*>(address);
    std::vector<std::byte> bytes(begin, begin + length);
    ucp_worker_release_address(worker_, address);
    return bytes;
  }

  // UCX trusts what arrives at its ports, so an unauthenticated connection could otherwise end this process.
  void stop_accepting() override {
    // UCX offers no way to end its listening. A filter that lets no packet through does; connections have sockets of
    // their own.
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog filter{1, &drop};
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::atoi(entry.path().filename().c_str());
      if (is_listening(fd) && net::port_of(fd) == port_ &&
          setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0)
        fail_errno("can't stop accepting at port {}", port_);
    }
  }

  // Packets that are being sent come back when the connection is closed.
  void drop(RankId rank) override { peers_.at(rank).is_lost = true; }

  void connect(RankId, std::vector<far::Contact> contacts, far::Receiver& receiver,
               std::shared_ptr<Wake> wake) override {
    receiver_ = &receiver;
    wake_ = std::move(wake);
    releases_ = std::make_shared<Releases>(wake_);
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = kActiveMessage;
    handler.cb = on_active_message;
    handler.arg = this;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "take active messages");
    for (const far::Contact& contact : contacts) {
      Peer& peer = peers_.try_emplace(contact.rank, Peer{this, contact.rank}).first->second;
      ucp_ep_params_t params{};
      params.field_mask =
          UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.address = reinterpret_cast<const ucp_address_t*>(contact.address.data());
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler = {on_error, &peer};
      const ucs_status_t status = ucp_ep_create(worker_, &params, &peer.endpoint);
      // The peer may have ended since its address was gathered.
      if (is_of_peer(status))
        lose(contact.rank, status);
      else
        check(status, "connect");
    }
  }

  void send(std::unique_ptr<far::Packet> packet) override {
    const RankId to = packet->to;
    const Peer& peer = peers_.at(to);
    if (peer.is_lost) return;
    auto sending = std::make_unique<Sending>(Sending{this, std::move(packet)});
    const auto bytes = sending->packet->bytes();
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = on_sent;
    param.user_data = sending.get();
    const ucs_status_ptr_t request = ucp_am_send_nbx(peer.endpoint, kActiveMessage, &sending->packet->header,
                                                     sizeof(far::Header), bytes.data(), bytes.size(), &param);
    if (UCS_PTR_IS_ERR(request)) return lose(to, UCS_PTR_STATUS(request));
    if (!request) return receiver_->on_sent(*sending->packet);
    ++num_sending_;
    (void)sending.release();
  }

  bool progress() override {
    for (void* data : releases_->take()) ucp_am_data_release(worker_, data);
    // Bounded, so that busy peers can't keep this rank from sending or from leaving.
    int num_moves = 0;
    while (num_moves < kProgressAtATime && ucp_worker_progress(worker_) != 0) ++num_moves;
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    return num_moves > 0;
  }

  void sleep() override {
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status == UCS_ERR_BUSY) return;  // there is something to progress already
    check(status, "arm its events");
    std::array<pollfd, 2> entries = {{{event_fd_, POLLIN, 0}, {wake_->fd(), POLLIN, 0}}};
    ::poll(entries.data(), entries.size(), -1);
    if (entries[1].revents != 0) wake_->clear();
  }

  [[nodiscard]] std::int64_t num_unsent() override {
    const ucp_request_param_t none{};
    if (!flush_) flush_ = ucp_worker_flush_nbx(worker_, &none);
    return num_sending_ + (is_in_progress(flush_) ? 1 : 0);
  }

  void close() override {
    std::vector<ucs_status_ptr_t> closing;
    if (UCS_PTR_IS_PTR(flush_)) closing.push_back(std::exchange(flush_, nullptr));
    for (auto& [rank, peer] : peers_) {
      if (!peer.endpoint) continue;
      peer.is_lost = true;
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      const ucs_status_ptr_t request = ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param);
      if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    }
    const auto deadline = std::chrono::steady_clock::now() + kCloseLimit;
    const auto is_in_time = [&] { return std::chrono::steady_clock::now() < deadline; };
    for (const ucs_status_ptr_t request : closing) {
      while (is_in_progress(request) && is_in_time()) ucp_worker_progress(worker_);
      ucp_request_free(request);
    }
    // What was cancelled comes back through its callback.
    while (num_sending_ > 0 && is_in_time()) ucp_worker_progress(worker_);
    if (!releases_) return;
    for (void* data : releases_->take()) ucp_am_data_release(worker_, data);
  }

 private:
  struct Peer {
    Carrier* carrier;
    RankId rank;
    ucp_ep_h endpoint = nullptr;
    bool is_lost = false;
  };

  /// UCX reads the packet until on_sent().
  struct Sending {
    Carrier* carrier;
    std::unique_ptr<far::Packet> packet;
  };

  /// A slice that is being fetched.
  struct Receiving {
    Carrier* carrier;
    far::Header header;
    std::shared_ptr<std::vector<std::byte>> buffer;
  };

  void start(const Environment::Network& options) {
    ucp_config_t* read = nullptr;
    check(ucp_config_read(nullptr, nullptr, &read), "read the configuration");
    const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> config(read, &ucp_config_release);
    const auto set = [&](const char* name, const std::string& value) {
      const ucs_status_t status = ucp_config_modify(config.get(), name, value.c_str());
      if (status != UCS_OK)
        fail(ErrorCode::invalid_argument, "UCX does not take {}={}: {}", name, value, ucs_status_string(status));
    };
    // shunt decides which ranks share memory, so UCX's own shared memory is off.
    if (!options.has_ucx_transports) set("TLS", "^sm");
    if (!options.devices.empty()) set("NET_DEVICES", options.devices);
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    const bool is_old = std::pair(major, minor) <= std::pair(1u, 13u);  // UCX warns of names that it does not know
    set(is_old ? "PORT_RANGE" : "TCP_PORT_RANGE", fmt::format("{}-{}", port_, port_));

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    check(ucp_init(&params, config.get(), &context_), "start");
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    try {
      check(ucp_worker_create(context_, &worker_params, &worker_), "make a worker");
      check(ucp_worker_get_efd(worker_, &event_fd_), "give an event descriptor");
    } catch (...) {
      if (worker_) ucp_worker_destroy(std::exchange(worker_, nullptr));
      ucp_cleanup(context_);
      throw;
    }
  }

  static ucs_status_t on_active_message(void* self, const void* data_header, std::size_t header_bytes, void* data,
                                        std::size_t bytes, const ucp_am_recv_param_t* param) {
    static_assert(std::is_trivially_copyable_v<far::Header>);
    far::Header header{};
    if (header_bytes != sizeof(header)) return UCS_OK;
    std::memcpy(&header, data_header, sizeof(header));
    auto* const carrier = static_cast<Carrier*>(self);
    try {
      return carrier->receive(header, data, bytes, *param);
    } catch (...) {
      carrier->thrown_ = std::current_exception();
      return UCS_OK;
    }
  }

  ucs_status_t receive(const far::Header& header, void* data, std::size_t bytes, const ucp_am_recv_param_t& param) {
    if (!receiver_->wants(header, bytes)) return UCS_OK;
    if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      fetch(header, data, bytes);
      return UCS_INPROGRESS;
    }
    const std::span<const std::byte> view(static_cast<const std::byte*>(data), bytes);
    if (header.kind != far::Kind::slice) {
      receiver_->receive(header, view, nullptr);
      return UCS_OK;
    }
    if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
      receiver_->receive(header, view, std::shared_ptr<const void>(data, [releases = releases_](const void* buffer) {
                           releases->add(const_cast<void*>(buffer));
                         }));
      return UCS_INPROGRESS;
    }
    const auto copy = std::make_shared<std::vector<std::byte>>(view.begin(), view.end());
    receiver_->receive(header, *copy, copy);
    return UCS_OK;
  }

  void fetch(const far::Header& header, void* data, std::size_t bytes) {
    auto receiving =
        std::make_unique<Receiving>(Receiving{this, header, std::make_shared<std::vector<std::byte>>(bytes)});
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.recv_am = on_received;
    param.user_data = receiving.get();
    std::vector<std::byte>& buffer = *receiving->buffer;
    const ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker_, data, buffer.data(), buffer.size(), &param);
    if (UCS_PTR_IS_ERR(request)) return lose(RankId(header.from), UCS_PTR_STATUS(request));
    if (!request) return receiver_->receive(header, buffer, receiving->buffer);
    (void)receiving.release();
  }

  static void on_sent(void* request, ucs_status_t, void* data) {
    const std::unique_ptr<Sending> sending(static_cast<Sending*>(data));
    --sending->carrier->num_sending_;
    sending->carrier->receiver_->on_sent(*sending->packet);
    ucp_request_free(request);
  }

  static void on_received(void* request, ucs_status_t status, std::size_t, void* data) {
    const std::unique_ptr<Receiving> receiving(static_cast<Receiving*>(data));
    ucp_request_free(request);
    // A transfer that failed comes with an error of its connection.
    if (status != UCS_OK) return;
    try {
      receiving->carrier->receiver_->receive(receiving->header, *receiving->buffer, receiving->buffer);
    } catch (...) {
      receiving->carrier->thrown_ = std::current_exception();
    }
  }

  static void on_error(void* data, ucp_ep_h, ucs_status_t status) {
    auto* const peer = static_cast<Peer*>(data);
    peer->carrier->lose(peer->rank, status);
  }

  void lose(RankId rank, ucs_status_t status) {
    if (!std::exchange(peers_.at(rank).is_lost, true)) receiver_->on_lost(rank, ucs_status_string(status));
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::uint16_t port_ = 0;  // where UCX listens for TCP connections, on whatever addresses
  far::Receiver* receiver_ = nullptr;
  std::shared_ptr<Wake> wake_;
  std::shared_ptr<Releases> releases_;
  std::map<RankId, Peer> peers_;
  std::int64_t num_sending_ = 0;
  ucs_status_ptr_t flush_ = nullptr;
  std::exception_ptr thrown_;  // by the receiver; nothing may be thrown through UCX
};

}  // namespace
}  // namespace shunt::ucx

extern "C" [[gnu::visibility("default")]] shunt::Backend shunt_backend() {
  static constexpr shunt::ucx::Functions functions{
      .make_carrier = [](const shunt::Environment::Network& options) -> std::unique_ptr<shunt::far::Carrier> {
        return std::make_unique<shunt::ucx::Carrier>(options);
      }};
  return {"ucx", shunt::build_id().data(), &functions};
}
