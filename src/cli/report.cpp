// shunt report: checks the JSON that another verb has written and makes a page with charts from it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/report/place_page.hpp"
#include "cli/report/training_page.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/json_fields.hpp"

namespace shunt::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMostReportBytes = std::size_t{64} << 20;

constexpr const char* kFooter = R"(
The page is one self-contained file, which can be mailed and opened offline. It supports light and dark colour schemes,
phones and wide screens. The only script is that of timelines.

Supported verbs:
  place   (maps; not --stats or --from) a table of methods, C_T and time per layer, load per rank, and co-activation
          before and after
  train   a table of runs, loss curves, the time of a step by cause, a timeline of lanes to zoom into, and traffic
          between ranks; leaves out what a file does not contain. Runs of several files are compared on one page

Examples:
  shunt place --trace routing.trace --nodes 2 --ranks-per-node 4 --method all -o map.json --json place.json
  shunt report place.json                 writes place.html
  shunt report place.json -o pages/index.html
  shunt train --schedule plain --json plain.json
  shunt train --schedule shunt --json shunt.json
  shunt report plain.json shunt.json      writes plain.html
)";

struct Arguments {
  std::vector<std::string> files;
  std::string page;
};

std::string make_page_of_place(const std::string& file, nlohmann::json content) {
  JsonFields fields(file, "", std::move(content));
  if (!fields.has("shunt_report"))
    fail(ErrorCode::invalid_argument, "{}: no report of a shunt verb: shunt_report is missing", file);
  if (const std::int64_t version = fields.integer("shunt_report", 1, INT32_MAX); version > kVersion)
    fields.refuse("shunt_report", fmt::format("version {} of the format; this release reads {}", version, kVersion));
  fields.choice("verb", {"place"});
  return make_place_page(read_place_report(fields), fs::path(file).filename().string());
}

/// Names of files that share theirs with another file are paths.
void set_names(std::vector<TrainingReport>& reports, const std::vector<std::string>& files) {
  const auto name = [](const std::string& file) { return fs::path(file).filename().string(); };
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto same = std::ranges::count_if(files, [&](const auto& file) { return name(file) == name(files[i]); });
    reports[i].name = same > 1 ? files[i] : name(files[i]);
  }
}

/// Reports of training runs have top-level "runs".
std::string make_page_of(const std::vector<std::string>& files) {
  std::vector<TrainingReport> reports;
  for (const std::string& file : files) {
    nlohmann::json content = parse_json(file, read_file(file, kMostReportBytes));
    if (content.is_object() && content.contains("runs"))
      reports.push_back(read_training_report(file, content));
    else if (files.size() == 1)
      return make_page_of_place(file, std::move(content));
    else
      fail(ErrorCode::invalid_argument, "{}: runs is missing; only reports of training runs share a page", file);
  }
  set_names(reports, files);
  return make_training_page(reports);
}

void run(const Arguments& arguments) {
  const std::string target =
      arguments.page.empty() ? fs::path(arguments.files.front()).replace_extension(".html").string() : arguments.page;
  for (const std::string& file : arguments.files)
    if (std::error_code ignored; fs::equivalent(file, target, ignored))
      fail(ErrorCode::invalid_argument,
           "{}: the page would replace the report that it is made from; name another with -o", target);
  const std::string page = make_page_of(arguments.files);
  write_file(target, page);
  fmt::print("page of {} KB written to {}\n", (page.size() + 999) / 1000, target);
}

}  // namespace

void add_report(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* report = app.add_subcommand("report", "Make a page with charts from the JSON of another verb");
  report->add_option("FILE", arguments->files, "Files written by a verb with --json; several if they are training runs")
      ->required();
  report->add_option("-o,--output", arguments->page, "The page to write")->default_str("the first FILE with .html");
  report->footer(kFooter);
  report->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
