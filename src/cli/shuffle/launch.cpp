#include "cli/shuffle/launch.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "cli/shuffle/supervise.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

constexpr const char* kLauncherVariable = "SHUNT_BENCH_LAUNCHER";

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

/// Without the program's name.
std::vector<std::string> own_arguments() {
  std::ifstream command_line("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(command_line, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

/// mpirun passes only these on to other hosts.
std::vector<std::string> variables_for_ranks() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    for (const char* prefix : {"SHUNT_", "MASTER_", "UCX_"})
      if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

std::vector<std::string> mpirun_command(const ShuffleConfig& config, const std::string& folder) {
  std::vector<std::string> command = {
      find_program("mpirun"), "-n", std::to_string(config.ranks), "--oversubscribe", "--bind-to", "none",
      // As fast as Open MPI gets: shared memory inside a host, and waits that give way.
      "--mca", "pml", "ob1", "--mca", "btl", mpirun_knows_hosts() ? "self,vader,tcp" : "self,vader", "--mca",
      "mpi_yield_when_idle", "1",
      // All its files in one place. mpirun and its daemons on other hosts make the folder where it is missing.
      "--mca", "orte_top_session_dir", folder, "--mca", "btl_vader_backing_directory", folder};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  if (mpirun_knows_hosts()) {
    command.insert(command.end(), {"--map-by", "slot"});
    for (const std::string& name : variables_for_ranks()) command.insert(command.end(), {"-x", name});
  }
  command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  const std::vector<std::string> arguments = own_arguments();
  command.insert(command.end(), arguments.begin(), arguments.end());
  // What was given last counts.
  command.insert(command.end(), {"--world", "env"});
  if (config.progress) command.insert(command.end(), {"--progress", "on"});
  return command;
}

/// Tells ranks whom they belong to. Runs in the process that becomes mpirun.
void set_variables_of_mpirun() {
  if (mpirun_knows_hosts())
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  else
    setenv(kLauncherVariable, std::to_string(getpid()).c_str(), 1);
}

/// Holds all files of one mpirun. mpirun removes it when it ends by itself, the destructor when it was killed.
class SessionFolder {
 public:
  SessionFolder() {
    // Where Open MPI would put its segments; a disk would write them back while they are measured.
    const std::string base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = base + "/shunt-mpi.XXXXXX";
    if (!mkdtemp(path_.data())) fail_errno("can't make a folder for mpirun in {}", base);
  }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

bool mpirun_knows_hosts() { return std::getenv("OMPI_MCA_orte_default_hostfile") != nullptr; }

std::string why_no_mpirun() {
  if (!SHUNT_HAVE_MPI) return "this build has no MPI (SHUNT_MPI)";
  return find_program("mpirun").empty() ? "there is no mpirun on PATH" : "";
}

int run_under_mpirun(const ShuffleConfig& config) {
  const EndingSignals signals;
  const ProgramEnd end = [&] {
    const SessionFolder folder;
    return supervise(mpirun_command(config, folder.path()), signals, set_variables_of_mpirun);
  }();
  if (end.signal != 0) end_by_signal(end.signal);
  return WIFEXITED(end.wait_status) ? WEXITSTATUS(end.wait_status) : 128 + WTERMSIG(end.wait_status);
}

void die_with_launcher() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the line above.
  const char* launcher = std::getenv(kLauncherVariable);
  if (launcher && std::to_string(getppid()) != launcher) _exit(1);
}

Environment::Launch launch_of(std::int32_t asked_ranks) {
  const auto launch = Environment::read().launch;
  if (!launch)
    fail(ErrorCode::invalid_argument,
         "--world env: no launcher has started this process; use mpirun, srun or RANK and WORLD_SIZE, or --world shm");
  if (asked_ranks > 0 && asked_ranks != launch->size)
    fail(ErrorCode::invalid_argument, "--ranks {}: {} has started {}", asked_ranks, launch->convention, launch->size);
  return *launch;
}

World join_launched(ShuffleConfig& config) {
  setenv("SHUNT_VIRTUAL_NODES", std::to_string(config.nodes).c_str(), 1);
  World world = World::from_environment();
  config.nodes = world.topology().num_nodes();
  if (world.topology().hash() != config.topology().hash())
    fail(ErrorCode::unsupported,
         "this benchmark needs nodes of equally many ranks, numbered one after the other; {} are not so",
         world.topology().num_nodes());
  return world;
}

}  // namespace shunt::cli
