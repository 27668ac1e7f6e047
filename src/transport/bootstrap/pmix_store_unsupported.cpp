// For builds without PMIx.
#include "core/fail.hpp"
#include "transport/bootstrap/pmix_store.hpp"

namespace shunt::bootstrap {

bool has_pmix() { return false; }
void publish(const std::string&, const std::string&) { fail(ErrorCode::unsupported, "this build has no PMIx"); }
std::optional<std::string> read_from_rank_0(const std::string&, Deadline) {
  fail(ErrorCode::unsupported, "this build has no PMIx");
}

}  // namespace shunt::bootstrap
