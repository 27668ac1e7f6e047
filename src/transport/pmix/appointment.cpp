#include "transport/pmix/appointment.hpp"

#include <fmt/format.h>

#include <sstream>

#include "core/fail.hpp"
#include "transport/net/ports.hpp"
#include "transport/net/proof.hpp"
#include "transport/net/tcp.hpp"
#include "transport/pmix/board.hpp"

namespace shunt::pmix {
namespace {

constexpr const char* kKey = "shunt.appointment";

struct Appointment {
  std::string addresses;
  std::int32_t port = 0;
  std::string token;

  [[nodiscard]] std::string text() const { return fmt::format("{} {} {}", addresses, port, token); }
  static Appointment read(const std::string& text) {
    Appointment appointment;
    std::istringstream words(text);
    if (!(words >> appointment.addresses >> appointment.port >> appointment.token) || appointment.port < 1 ||
        appointment.port > 65535)
      fail(ErrorCode::mismatch, "rank 0 has published nothing that says where to meet");
    return appointment;
  }
};

std::string random_token() {
  std::string token;
  for (const std::byte byte : net::draw_nonce()) token += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return token;
}

Appointment choose(const Environment::Network& network) {
  // Kept for the job's later worlds, which meet there too.
  static const Descriptor port = net::reserve_port(network.port_range);
  const auto addresses = net::own_addresses(network.interface);
  if (addresses.empty() && network.master_address.empty())
    fail(ErrorCode::invalid_argument, "rank 0 has no address that other hosts reach{}{}; set MASTER_ADDR",
         network.interface.empty() ? "" : " at SHUNT_INTERFACE=", network.interface);
  return {network.master_address.empty() ? fmt::format("{}", fmt::join(addresses, ",")) : network.master_address,
          network.master_port != 0 ? network.master_port : net::port_of(port.get()), random_token()};
}

Appointment choose_and_publish(const Environment::Network& network) {
  const Appointment chosen = choose(network);
  publish(kKey, chosen.text());
  return chosen;
}

Appointment hear(const Environment& environment) {
  const auto text = read_from_rank_0(kKey, std::chrono::steady_clock::now() + environment.join);
  if (!text)
    fail(ErrorCode::deadline,
         "rank {} waited {} ms in vain for rank 0 to say by PMIx where to meet; if MASTER_ADDR, MASTER_PORT and "
         "SHUNT_JOB_TOKEN are set for rank 0, set them for all ranks (mpirun -x)",
         environment.launch->rank, environment.join.count());
  return Appointment::read(*text);
}

void expect_pmix(const Environment::Launch& launch) {
  if (launch.has_pmix && is_built_in()) return;
  fail(ErrorCode::invalid_argument,
       "{} started {} of {} ranks on this host: set MASTER_ADDR and MASTER_PORT to where rank 0 can be met, and "
       "SHUNT_JOB_TOKEN to a secret, the same for all ranks ({} PMIx, which would pass them on)",
       launch.convention, launch.local_size, launch.size,
       is_built_in() ? "the launcher does not offer" : "this build is without");
}

}  // namespace

Environment::Network agree_where_to_meet(const Environment& environment) {
  Environment::Network network = environment.network;
  if (!network.master_address.empty() && network.master_port != 0 && !network.token.empty()) return network;
  expect_pmix(*environment.launch);
  static const Appointment appointment =
      environment.launch->rank == 0 ? choose_and_publish(network) : hear(environment);
  if (network.master_address.empty()) network.master_address = appointment.addresses;
  if (network.master_port == 0) network.master_port = appointment.port;
  if (network.token.empty()) network.token = appointment.token;
  return network;
}

}  // namespace shunt::pmix
