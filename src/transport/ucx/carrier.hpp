// Packets over UCX's active messages.
#pragma once

#include <exception>

#include "transport/far/carrier.hpp"
#include "transport/ucx/releases.hpp"
#include "transport/ucx/worker.hpp"

namespace shunt::ucx {

class Carrier final : public far::Carrier {
 public:
  explicit Carrier(const WorkerOptions& options) : worker_(options) {}
  ~Carrier() override;

  [[nodiscard]] std::vector<std::byte> address() const override { return worker_.address(); }
  void connect(RankId self, std::vector<far::Contact> contacts, far::Receiver& receiver,
               std::shared_ptr<far::Wake> wake) override;
  void refuse_strangers() override { worker_.refuse_strangers(); }
  void send(std::unique_ptr<far::Packet> packet) override;
  void forget(RankId rank) override;
  bool progress() override;
  void sleep() override;
  [[nodiscard]] std::int64_t num_leaving() override;
  void close(std::chrono::milliseconds limit) override;

 private:
  struct Peer;
  struct Sending;
  struct Receiving;

  ucs_status_t receive(const far::Header& header, void* data, std::size_t bytes, const ucp_am_recv_param_t& param);
  void fetch(const far::Header& header, void* data, std::size_t bytes);
  void lose(RankId peer, ucs_status_t status);
  [[nodiscard]] Peer& peer(RankId rank) { return *peers_[rank.index()]; }

  static ucs_status_t on_active_message(void* self, const void* header, std::size_t header_bytes, void* data,
                                        std::size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* sending);
  static void on_received(void* request, ucs_status_t status, std::size_t bytes, void* receiving);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  Worker worker_;
  far::Receiver* receiver_ = nullptr;
  std::shared_ptr<far::Wake> wake_;
  std::shared_ptr<Releases> releases_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; none for those that are no contacts
  std::int64_t num_sending_ = 0;
  ucs_status_ptr_t flush_ = nullptr;
  std::exception_ptr thrown_;  // by the receiver; nothing may be thrown through UCX
};

}  // namespace shunt::ucx
