// shunt selftest: describes this machine and compares every operation on it with the reference.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine_limits.hpp"
#include "bench/selftest/link.hpp"
#include "bench/selftest/processes.hpp"
#include "bench/selftest/run.hpp"
#include "bench/selftest/warnings.hpp"
#include "cli/info.hpp"
#include "cli/output.hpp"
#include "cli/selftest_report.hpp"
#include "cli/verbs.hpp"
#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/environment.hpp"

namespace shunt::cli {
namespace {

using namespace bench::selftest;

constexpr const char* kFooter = R"(
The first command to run on a new machine. It prints what the machine has, warns about settings that will cause trouble
(`warn:`), and then checks plan, dispatch, combine and both gradients in every layout and row dtype, with replicas, drops,
capacity and alignment. Results are compared bit for bit with a slow reference that shares no planner and no kernel with
the code under test. One line per link and layout:
  ok              all cases agree; their number and time
  FAILED          the first difference, or the Error that ended a case
  NOT ALL CHECKED the time was not sufficient: raise --seconds
  not offered     engines of this kind can't do it (docs/errors.md)
  skipped         this machine lacks something, such as a GPU

Links:
{}
The same links join ranks that share a GPU; with several GPUs, also ranks with one GPU each.

Exit status: 0 if everything was checked and agrees, except skipped links; 1 otherwise; 2 a command line that is wrong.

Examples:
  shunt selftest
  shunt selftest --devices all --json selftest.json
  shunt selftest --devices none --links threads,processes --ranks 2,4,7
)";

struct Arguments {
  std::vector<std::int32_t> ranks = {2, 4};
  std::vector<std::string> links = {};
  std::string devices = "first";
  double seconds = 120;
  std::uint64_t seed = 1;
  std::string json;
  std::string progress = "auto";
};

class Progress {
 public:
  explicit Progress(const std::string& enabled)
      : is_on_(enabled == "on" || (enabled == "auto" && isatty(STDERR_FILENO) != 0)) {}

  void show(const std::string& text) const {
    if (is_on_) print_diagnostic("\r\x1b[K{}", text);
  }

 private:
  bool is_on_;
};

LinkRequest request_of(const Arguments& arguments) {
  LinkRequest request{.devices = arguments.devices};
  request.rank_counts = arguments.ranks;
  std::ranges::sort(request.rank_counts);
  request.rank_counts.erase(std::unique(request.rank_counts.begin(), request.rank_counts.end()),
                            request.rank_counts.end());
  for (const std::int32_t ranks : request.rank_counts) bench::check_ranks(ranks);
  if (arguments.links.empty()) return request;
  std::erase_if(request.types, [&](LinkType type) {
    return std::ranges::find(arguments.links, to_string(type)) == arguments.links.end();
  });
  return request;
}

/// Facts about the machine, as printed and for the report.
struct Facts {
  std::vector<BuildPart> parts;
  BusFacts bus;
  std::vector<std::string> warnings;
  nlohmann::ordered_json report;
};

Facts find_facts(const LinkRequest& request, const Progress& progress) {
  Facts facts{.parts = find_build_parts(), .bus = {}, .warnings = {}, .report = {}};
  print_build(facts.parts);
  const MachineFacts machine = read_machine_facts();
  print_machine(machine);
  flush_stdout();
  progress.show("looking for GPUs");
  const FoundDevices found = find_devices();
  progress.show("");
  facts.bus = read_bus_facts(found.devices);
  facts.bus.why_no_gpus = found.why_not;
  print_bus(facts.bus);
  facts.warnings = warnings_of(machine, facts.bus,
                               {.ranks = request.rank_counts.back(),
                                .has_ucx = part_of(facts.parts, "ucx").is_there,
                                .device_connections = Environment::read().device_connections});
  for (const BuildPart& part : facts.parts)
    if (!part.why_not.empty()) facts.warnings.push_back(fmt::format("{} can't be used: {}", part.name, part.why_not));
  if (!facts.warnings.empty()) fmt::print("\n");
  for (const std::string& warning : facts.warnings) fmt::print("warn: {}\n", warning);

  facts.report = build_report(facts.parts);
  for (const BuildPart& part : facts.parts)
    if (!part.why_not.empty()) facts.report["why_not"][part.name] = part.why_not;
  facts.report["machine"] = machine_report(machine);
  facts.report.update(bus_report(facts.bus));
  facts.report["warnings"] = facts.warnings;
  return facts;
}

std::string why_no_ucx(const std::vector<BuildPart>& parts) {
  const BuildPart& ucx = part_of(parts, "ucx");
  if (ucx.is_there) return "";
  return ucx.why_not.empty() ? "this build of shunt is without UCX" : ucx.why_not;
}

std::int64_t count(const std::vector<Verdict>& verdicts, Status status) {
  return std::ranges::count(verdicts, status, &Verdict::status);
}

void print_summary(const std::vector<Verdict>& verdicts, double seconds) {
  std::int64_t cases = 0;
  for (const Verdict& verdict : verdicts) cases += verdict.num_ok;
  fmt::print("\n{}: {} ok in {:.1f} s; lines: {} ok", is_fine(verdicts) ? "passed" : "FAILED", plural(cases, "case"),
             seconds, count(verdicts, Status::ok));
  for (const Status status : {Status::failed, Status::incomplete, Status::not_offered, Status::skipped})
    if (const std::int64_t number = count(verdicts, status); number > 0)
      fmt::print(", {} {}", number, to_string(status));
  fmt::print("\n");
}

void run(const Arguments& arguments) {
  const LinkRequest request = request_of(arguments);
  if (!arguments.json.empty()) check_writable(arguments.json);
  const Progress progress(arguments.progress);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds_since = [](auto since) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  };

  Facts facts = find_facts(request, progress);
  const LinkChoice choice =
      choose_links(request, facts.bus, {.far_processes = why_no_far_processes(), .ucx = why_no_ucx(facts.parts)});

  fmt::print("\nchecks with {} ranks\n", fmt::join(request.rank_counts, " and "));
  for (const Verdict& verdict : choice.verdicts) print_verdict(verdict);
  flush_stdout();
  RunOptions options{.seconds = std::max(1.0, arguments.seconds - seconds_since(begin)), .seed = arguments.seed};
  options.on_progress = [&](const std::string& text) { progress.show(text); };
  options.on_verdict = [&](const Verdict& verdict) {
    progress.show("");
    print_verdict(verdict);
    flush_stdout();
  };
  std::vector<Verdict> verdicts = choice.verdicts;
  std::ranges::move(run_checks(choice.links, options), std::back_inserter(verdicts));

  print_summary(verdicts, seconds_since(begin));
  // Repeated at the end, where it is not overlooked.
  for (const Verdict& verdict : verdicts)
    if (verdict.status == Status::skipped) print_verdict(verdict);
  if (!arguments.json.empty()) {
    nlohmann::ordered_json report = std::move(facts.report);
    report["options"] = {{"ranks", request.rank_counts},
                         {"devices", arguments.devices},
                         {"seconds", arguments.seconds},
                         {"seed", arguments.seed}};
    report["checks"] = verdict_report(verdicts);
    report["seconds"] = seconds_since(begin);
    report["passed"] = is_fine(verdicts);
    write_file(arguments.json, report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  if (!is_fine(verdicts)) throw CLI::RuntimeError(1);
}

std::string describe_links() {
  std::string text;
  for (const LinkType type : kLinkTypes) text += fmt::format("  {:<12}{}\n", to_string(type), explain(type));
  return text;
}

}  // namespace

void add_selftest(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb =
      app.add_subcommand("selftest", "Describe this machine and check whether shunt works on it: run it first");
  verb->footer(fmt::format(kFooter, describe_links()));
  verb->add_option("--devices", arguments->devices, "GPUs to check: none, first, all, or indices such as 0,2")
      ->capture_default_str();
  std::vector<std::string> types;
  for (const LinkType type : kLinkTypes) types.emplace_back(to_string(type));
  verb->add_option("--links", arguments->links, "Links to check, by default all")
      ->delimiter(',')
      ->check(CLI::IsMember(types));
  verb->add_option("--ranks", arguments->ranks, "Numbers of ranks to check with")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--seconds", arguments->seconds, "Total time, divided evenly among the links")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "Seed of routings and rows")->capture_default_str();
  verb->add_option("--json", arguments->json, "Write all facts and results to this file (docs/selftest.md)");
  verb->add_option("--progress", arguments->progress, "on, off or auto (on a terminal)")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
