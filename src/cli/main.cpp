// The command line of shunt.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "cli/verbs.hpp"
#include "core/diagnostic.hpp"
#include "shunt/error.hpp"

namespace {

constexpr int kError = 1, kWrongUsage = 2;  // documented in --help and docs/errors.md

/// Maps CLI11's many codes for wrong command lines to one.
int exit_status(const CLI::App& app, const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : kWrongUsage; }

int run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& ended) {
    return ended.get_exit_code();  // mpirun's
  } catch (const CLI::RequiredError& error) {
    // Report an unknown verb rather than a missing one.
    const std::vector<std::string> unknown = app.remaining(true);
    return unknown.empty() ? exit_status(app, error) : exit_status(app, CLI::ExtrasError(unknown));
  } catch (const CLI::ParseError& error) {
    return exit_status(app, error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  shunt::cli::set_up_signals();
  CLI::App app(
      "shunt moves Mixture-of-Experts tokens to their experts and back.\n"
      "Start with `shunt selftest`, then `shunt bench shuffle --help`.",
      "shunt");
  app.set_version_flag("--version", SHUNT_VERSION);
  app.footer("Exit status: 0 done, 1 an error, 2 a command line that is wrong.");
  app.require_subcommand(1);
  shunt::cli::add_info(app);
  shunt::cli::add_selftest(app);
  CLI::App* bench =
      app.add_subcommand("bench", "Measure shunt beside conventional implementations")->require_subcommand(1);
  shunt::cli::add_bench_shuffle(*bench);
  shunt::cli::add_bench_layer(*bench);
  shunt::cli::add_bench_train(*bench);
  shunt::cli::add_place(app);
  shunt::cli::add_schedule(app);
  shunt::cli::add_train(app);
  shunt::cli::add_report(app);
  shunt::cli::check_numbers(app);
  try {
    const int status = run(app, argc, argv);
    shunt::cli::flush_stdout();
    return status;
  } catch (const shunt::Error& error) {
    shunt::print_diagnostic("shunt: error ({}): {}\n", shunt::to_string(error.code()), error.what());
  } catch (const std::exception& error) {
    shunt::print_diagnostic("shunt: error: {}\n", error.what());
  }
  return kError;
}
