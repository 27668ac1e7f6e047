#include "cli/shuffle/launch.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

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

}  // namespace

std::string become_mpirun(const ShuffleConfig& config) {
  if (!SHUNT_HAVE_MPI) return "this build has no MPI (SHUNT_MPI)";
  const std::string mpirun = find_program("mpirun");
  if (mpirun.empty()) return "there is no mpirun on PATH";
  std::vector<std::string> command = {
      mpirun, "-n", std::to_string(config.ranks), "--oversubscribe", "--bind-to", "none",
      // As fast as Open MPI gets on one host: shared memory, and waits that give way.
      "--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1"};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  const std::vector<std::string> arguments = own_arguments();
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), {"--world", "env"});
  if (config.progress) command.insert(command.end(), {"--progress", "on"});

  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  setenv(kLauncherVariable, std::to_string(getpid()).c_str(), 1);  // mpirun keeps this process's id
  execv(mpirun.c_str(), argv.data());
  fail_errno("can't start {}", mpirun);
}

void die_with_launcher() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the line above.
  const char* launcher = std::getenv(kLauncherVariable);
  if (launcher && std::to_string(getppid()) != launcher) _exit(1);
}

}  // namespace shunt::cli
