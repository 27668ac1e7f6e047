#include "transport/far/make_carrier.hpp"

#include "core/fail.hpp"
#include "core/log.hpp"
#include "transport/far/rdma.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::far {

const char* name_of(Network network) { return network == Network::tcp ? "tcp" : "ucx"; }

Network choose_network(const CarrierOptions& options) {
  if (options.network.empty()) {
    if (rdma_devices(options.devices).empty()) return Network::tcp;
    if (ucx::is_available()) return Network::ucx;
    log("this machine has RDMA, but rows go over TCP: {}", load_backend("ucx").why_not);
    return Network::tcp;
  }
  for (const Network network : {Network::tcp, Network::ucx})
    if (options.network == name_of(network)) return network;
  fail(ErrorCode::invalid_argument, "SHUNT_NETWORK='{}': expected tcp or ucx", options.network);
}

std::unique_ptr<Carrier> make_carrier(Network network, const CarrierOptions& options) {
  if (network == Network::tcp)
    return std::make_unique<tcp::Carrier>(tcp::Options{options.devices, options.port_range, options.send_buffer_bytes});
  const std::string devices = rdma_devices(options.devices);
  return ucx::make_carrier(
      {devices.empty() ? options.devices : devices, options.port_range, options.has_ucx_transports});
}

}  // namespace shunt::far
