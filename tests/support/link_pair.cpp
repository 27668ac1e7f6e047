#include "support/link_pair.hpp"

#include <array>
#include <cstring>

#include "support/require.hpp"

namespace shunt::test {
namespace {

constexpr std::uint64_t kToHonest = 77;
constexpr std::uint64_t kToPeer = 78;

// As ucx::Link writes it.
struct WireHeader {
  std::uint64_t session;
  std::uint64_t engine;
  std::uint32_t sequence;
  std::uint32_t index;
  std::int32_t from;
  RawPeer::Kind kind;
  std::uint8_t is_last;
  std::uint16_t unused;
};

std::unique_ptr<ucx::Worker> worker_on_loopback() {
  return std::make_unique<ucx::Worker>(ucx::WorkerOptions{.devices = "lo", .port_range = ""});
}

}  // namespace

FarLink::Listener LinkListener::listener() {
  return {.on_arrival = [] {},
          .on_fault =
              [this](ErrorCode code, RankId culprit, const std::string& text) {
                const std::lock_guard lock(mutex_);
                if (!fault_) fault_ = Fault{code, culprit, RankId(0), text};
              }};
}

std::optional<Fault> LinkListener::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

HonestEnd::HonestEnd(std::span<const std::byte> address_of_peer, std::chrono::milliseconds liveness) {
  auto worker = worker_on_loopback();
  address_ = worker->address();
  const ucx::Contact contact{RankId(1), {address_of_peer.begin(), address_of_peer.end()}, kToPeer, kToHonest};
  link_ = std::make_unique<ucx::Link>(
      std::move(worker), ucx::LinkOptions{.rank = RankId(0), .size = 2, .contacts = {contact}, .liveness = liveness},
      heard_.listener());
}

RawPeer::RawPeer() : worker_(worker_on_loopback()) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = 0;
  handler.cb = on_message;
  handler.arg = this;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  ucx::check(ucp_worker_set_am_recv_handler(worker_->get(), &handler), "take active messages");
}

RawPeer::~RawPeer() { vanish(); }

void RawPeer::connect(std::span<const std::byte> address) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {[](void*, ucp_ep_h, ucs_status_t) {}, nullptr};
  for (ucp_ep_h& endpoint : endpoints_) ucx::check(ucp_ep_create(worker_->get(), &params, &endpoint), "connect");
  const ucp_request_param_t none{};
  for (const ucp_ep_h endpoint : endpoints_) await(ucp_ep_flush_nbx(endpoint, &none));
}

void RawPeer::vanish() {
  for (ucp_ep_h& endpoint : endpoints_) {
    if (!endpoint) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    await(ucp_ep_close_nbx(std::exchange(endpoint, nullptr), &param));
  }
  worker_.reset();
}

void RawPeer::await(ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) progress();
  ucp_request_free(request);
}

void RawPeer::send(Kind kind, std::span<const std::byte> bytes) {
  const WireHeader header{kToHonest, 0, 0, 0, 1, kind, 0, 0};
  const ucp_request_param_t param{};
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoints_.front(), 0, &header, sizeof(header), bytes.data(), bytes.size(), &param);
  require(!UCS_PTR_IS_ERR(request), "the message can be sent");
  await(request);
}

ucs_status_t RawPeer::on_message(void* self, const void* header, std::size_t header_bytes, void*, std::size_t,
                                 const ucp_am_recv_param_t*) {
  WireHeader read{};
  require(header_bytes == sizeof(read), "the wire looks as expected");
  std::memcpy(&read, header, sizeof(read));
  if (read.session == kToPeer) ++static_cast<RawPeer*>(self)->num_heard_.at(static_cast<std::size_t>(read.kind));
  return UCS_OK;
}

}  // namespace shunt::test
