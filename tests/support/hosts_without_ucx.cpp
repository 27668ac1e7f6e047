#include "support/hosts_of_threads.hpp"

namespace shunt::test {

std::string why_no_hosts() { return "this build has no UCX (SHUNT_UCX)"; }

std::vector<std::shared_ptr<Transport>> join_hosts(std::int32_t, std::chrono::milliseconds) { return {}; }

}  // namespace shunt::test
