#include "cli/shuffle/launch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/diagnostic.hpp"
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

std::vector<std::string> mpirun_command(const ShuffleConfig& config) {
  std::vector<std::string> command = {
      find_program("mpirun"), "-n", std::to_string(config.ranks), "--oversubscribe", "--bind-to", "none",
      // As fast as Open MPI gets: shared memory inside a host, and waits that give way.
      "--mca", "pml", "ob1", "--mca", "btl", mpirun_knows_hosts() ? "self,vader,tcp" : "self,vader", "--mca",
      "mpi_yield_when_idle", "1"};
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

[[noreturn]] void become(std::vector<std::string> command, int output, pid_t parent) {
  // Asked to end, mpirun ends its ranks and removes its files, even after this program was killed.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before the line above
  dup2(output, STDOUT_FILENO);
  if (mpirun_knows_hosts())
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  else
    setenv(kLauncherVariable, std::to_string(getpid()).c_str(), 1);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv.front(), argv.data());
  print_diagnostic("shunt: can't start {}: {}\n", argv.front(), std::strerror(errno));
  _exit(1);
}

/// mpirun would not say that nobody could read the results.
bool copy_to_stdout(int input) {
  std::array<char, 4096> buffer{};
  for (ssize_t bytes = 0; (bytes = read(input, buffer.data(), buffer.size())) > 0;)
    if (std::fwrite(buffer.data(), 1, static_cast<std::size_t>(bytes), stdout) < static_cast<std::size_t>(bytes) ||
        std::fflush(stdout) != 0)
      return false;
  return true;
}

}  // namespace

bool mpirun_knows_hosts() { return std::getenv("OMPI_MCA_orte_default_hostfile") != nullptr; }

std::string why_no_mpirun() {
  if (!SHUNT_HAVE_MPI) return "this build has no MPI (SHUNT_MPI)";
  return find_program("mpirun").empty() ? "there is no mpirun on PATH" : "";
}

int run_under_mpirun(const ShuffleConfig& config) {
  const std::vector<std::string> command = mpirun_command(config);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("can't open a pipe");
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t mpirun = fork();
  if (mpirun < 0) fail_errno("can't start {}", command.front());
  if (mpirun == 0) become(command, ends[1], parent);
  close(ends[1]);
  // As system() does: a terminal sends them to mpirun too, which then ends by itself.
  signal(SIGINT, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  const bool copied = copy_to_stdout(ends[0]);
  const int cause = errno;
  if (!copied) kill(mpirun, SIGTERM);
  close(ends[0]);
  int status = 0;
  while (waitpid(mpirun, &status, 0) < 0 && errno == EINTR) {
  }
  errno = cause;
  if (!copied) fail_errno("can't write to standard output");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
