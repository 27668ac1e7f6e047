// shunt report: a page with pictures, made from the JSON that other verbs write.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cli/output.hpp"
#include "cli/report/place_report.hpp"
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
The page is one file that loads nothing: pictures are inside, no script runs, it can be mailed and opened offline.
It follows the reader's light or dark scheme and fits phones and wide screens.

Verbs whose JSON can be shown:
  place   (maps; not --stats or --from) methods in a table, C_T and time by layer, load of each rank, co-activation
          before and after

Examples:
  shunt place --trace routing.trace --nodes 2 --ranks-per-node 4 --method all -o map.json --json place.json
  shunt report place.json                 writes place.html
  shunt report place.json -o pages/index.html
)";

struct Arguments {
  std::string file, page;
};

std::string make_page_of(const std::string& file) {
  JsonFields fields(file, "", parse_json(file, read_file(file, kMostReportBytes)));
  if (!fields.has("shunt_report"))
    fail(ErrorCode::invalid_argument, "{}: no report of a shunt verb: shunt_report is missing", file);
  if (const std::int64_t version = fields.integer("shunt_report", 1, INT32_MAX); version > kVersion)
    fields.refuse("shunt_report", fmt::format("version {} of the format; this release reads {}", version, kVersion));
  fields.choice("verb", {"place"});
  return make_place_page(read_place_report(fields), fs::path(file).filename().string());
}

void run(const Arguments& arguments) {
  const std::string target =
      arguments.page.empty() ? fs::path(arguments.file).replace_extension(".html").string() : arguments.page;
  std::error_code ignored;
  if (fs::equivalent(arguments.file, target, ignored))
    fail(ErrorCode::invalid_argument,
         "{}: the page would replace the report that it is made from; name another with -o", target);
  const std::string page = make_page_of(arguments.file);
  write_file(target, page);
  fmt::print("page of {} KB written to {}\n", (page.size() + 999) / 1000, target);
}

}  // namespace

void add_report(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* report = app.add_subcommand("report", "Make a page with pictures of what another verb found");
  report->add_option("FILE", arguments->file, "What a verb wrote with --json")->required();
  report->add_option("-o,--output", arguments->page, "The page to write")->default_str("FILE with .html");
  report->footer(kFooter);
  report->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
