// shunt: measures, plans and explains the shuffle of Mixture-of-Experts tokens.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "cli/flush_stdout.hpp"
#include "cli/hangup.hpp"
#include "cli/verbs.hpp"
#include "core/diagnostic.hpp"
#include "shunt/error.hpp"

namespace {

int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RequiredError& error) {
    // A word that is no verb says more than that a verb is missing.
    const std::vector<std::string> unknown = app.remaining(true);
    return unknown.empty() ? app.exit(error) : app.exit(CLI::ExtrasError(unknown));
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  shunt::cli::restore_hangup();
  CLI::App app(
      "shunt moves Mixture-of-Experts tokens to their experts and back.\n"
      "Start with `shunt info`, then `shunt bench shuffle --help`.",
      "shunt");
  app.set_version_flag("--version", SHUNT_VERSION);
  app.require_subcommand(1);
  shunt::cli::add_info(app);
  CLI::App* bench = app.add_subcommand("bench", "Measure, beside what you would use otherwise")->require_subcommand(1);
  shunt::cli::add_bench_shuffle(*bench);
  shunt::cli::add_bench_layer(*bench);
  shunt::cli::add_place(app);
  shunt::cli::add_schedule(app);
  shunt::cli::add_report(app);
  try {
    const int status = run(app, argc, argv);
    shunt::cli::flush_stdout();
    return status;
  } catch (const shunt::Error& error) {
    shunt::print_diagnostic("shunt: error ({}): {}\n", shunt::to_string(error.code()), error.what());
  } catch (const std::exception& error) {
    shunt::print_diagnostic("shunt: error: {}\n", error.what());
  }
  return 1;
}
