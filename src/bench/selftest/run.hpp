// Runs the checks of all links, each link in a process of its own and for its share of the time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/selftest/link.hpp"

namespace shunt::bench::selftest {

enum class Status : std::uint8_t {
  ok,           ///< all cases agree with the reference
  failed,       ///< one differs, or an Error ended it
  incomplete,   ///< nothing differs, but the time was up before all cases were checked
  not_offered,  ///< this kind of engine can't do it, as documented
  skipped,      ///< the machine lacks what it needs
};

std::string_view to_string(Status status);

/// What came of one layout on one link, or of a link.
struct Verdict {
  std::string link;
  std::string layout = {};  ///< empty: of all layouts
  Status status = Status::ok;
  std::int32_t num_cases = 0;  ///< that there are
  std::int32_t num_ok = 0;
  std::int32_t num_failed = 0;
  std::int32_t num_comparisons = 0;
  double seconds = 0;
  std::string why = {};                       ///< the first difference or Error, or why it was not checked
  std::vector<std::string> not_offered = {};  ///< by this kind of engine, of what is checked elsewhere
};

struct RunOptions {
  double seconds = 120;  ///< for all; one more deadline at most where something hangs
  std::uint64_t seed = 1;
  std::chrono::milliseconds deadline{20'000};  ///< of an operation
  std::function<void(const Verdict&)> on_verdict = nullptr;
  std::function<void(const std::string&)> on_progress = nullptr;  ///< what is under way
  Hooks hooks = {};
};

/// Links that lack something are in `skipped`; they stand first. Call it while this process has one thread and has not
/// used CUDA.
std::vector<Verdict> run_checks(const std::vector<Link>& links, const RunOptions& options);

/// All was checked that is offered and that the machine has, and nothing differs.
[[nodiscard]] bool is_fine(const std::vector<Verdict>& verdicts);

}  // namespace shunt::bench::selftest
