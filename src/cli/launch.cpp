#include "cli/launch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <vector>

#include "cli/signals.hpp"
#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::cli {
namespace {

constexpr std::chrono::seconds kGrace{5};

[[noreturn]] void become(std::vector<std::string> command, int output, pid_t parent, const EndingSignals& signals,
                         const std::function<void()>& prepare) {
  // Signals to this process's group (from a terminal or timeout) would reach mpirun in addition to the one passed on,
  // and after a second signal mpirun leaves its files behind.
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);  // a background process group may be stopped when it writes to the terminal
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // the parent died before the line above
  dup2(above_standard(open("/dev/null", O_RDONLY | O_CLOEXEC)), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  signals.release();
  prepare();
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv.front(), argv.data());
  print_diagnostic("shunt: can't start {}: {}\n", argv.front(), std::strerror(errno));
  _exit(1);
}

/// Copies a child's output to stdout. mpirun itself does not report that its output could not be written.
class Output {
 public:
  explicit Output(int readable) : readable_(readable) { fcntl(readable_.get(), F_SETFL, O_NONBLOCK); }

  /// −1 after the end of the output.
  [[nodiscard]] int descriptor() const { return readable_.get(); }
  /// errno of a failed write; 0: none.
  [[nodiscard]] int error() const { return error_; }

  /// Copies everything that is available.
  void copy() {
    std::array<char, 4096> buffer{};
    while (readable_.valid()) {
      const ssize_t bytes = read(readable_.get(), buffer.data(), buffer.size());
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0 && errno == EAGAIN) return;
      if (bytes <= 0 || !write_out(buffer.data(), static_cast<std::size_t>(bytes))) readable_ = Descriptor();
    }
  }

 private:
  bool write_out(const char* bytes, std::size_t size) {
    if (std::fwrite(bytes, 1, size, stdout) == size && std::fflush(stdout) == 0) return true;
    error_ = errno;
    return false;
  }

  Descriptor readable_;
  int error_ = 0;
};

class Program {
 public:
  explicit Program(pid_t pid) : pid_(pid), process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    if (process_.valid()) return;
    const int cause = errno;
    kill(pid_, SIGKILL);
    wait();
    errno = cause;
    fail_errno("can't watch process {}", pid_);
  }

  /// Readable after the process has ended.
  [[nodiscard]] int descriptor() const { return process_.get(); }
  [[nodiscard]] Deadline deadline() const { return deadline_; }

  /// Sends one SIGTERM, however often it is called; see become().
  void ask_to_end() {
    if (was_asked_) return;
    was_asked_ = true;
    kill(pid_, SIGTERM);
    deadline_ = std::chrono::steady_clock::now() + kGrace;
  }

  /// To be called after the deadline.
  void end() {
    kill(pid_, SIGKILL);
    deadline_ = Deadline::max();
  }

  int wait() const {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

 private:
  pid_t pid_;
  Descriptor process_;
  bool was_asked_ = false;
  Deadline deadline_ = Deadline::max();
};

struct ProgramEnd {
  int wait_status = 0;  ///< of waitpid()
  int signal = 0;       ///< the signal that asked this process to end; 0: none
};

/// Runs a program in a process group of its own, without input, and copies its output to stdout. `prepare` runs in the
/// child before exec. If a signal asks this process to end, or if stdout can't be written, the program receives one
/// SIGTERM and is killed 5 seconds later; it also receives a SIGTERM if this process dies. Returns when the program has
/// ended. Throws Error(system) if it can't be started or its output can't be copied.
ProgramEnd supervise(std::vector<std::string> command, const EndingSignals& signals,
                     const std::function<void()>& prepare) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("can't open a pipe");
  Output output(ends[0]);
  Descriptor writable(ends[1]);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail_errno("can't start {}", command.front());
  if (child == 0) become(std::move(command), writable.get(), parent, signals, prepare);
  writable = Descriptor();

  Program program(child);
  ProgramEnd result;
  for (bool has_ended = false; !has_ended;) {
    std::array<pollfd, 3> entries = {pollfd{program.descriptor(), POLLIN, 0}, pollfd{signals.descriptor(), POLLIN, 0},
                                     pollfd{output.descriptor(), POLLIN, 0}};
    if (!wait_ready(entries, program.deadline())) program.end();
    if (const int number = signals.take(); result.signal == 0) result.signal = number;
    has_ended = entries[0].revents != 0;
    output.copy();
    if (result.signal != 0 || output.error() != 0) program.ask_to_end();
  }
  result.wait_status = program.wait();
  errno = output.error();
  if (errno != 0 && result.signal == 0) fail_errno("can't write to standard output");
  return result;
}

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

/// The arguments of this process, without the program's name.
std::vector<std::string> own_arguments() {
  std::ifstream command_line("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(command_line, word, '\0');) words.push_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

/// Names of the variables that mpirun must pass to other machines; it passes no others.
std::vector<std::string> variables_for_ranks() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    for (const char* prefix : {"SHUNT_", "MASTER_", "UCX_"})
      if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

std::vector<std::string> mpirun_command(const bench::ShuffleConfig& config, const std::string& folder) {
  std::vector<std::string> command = {
      find_program("mpirun"), "-n", std::to_string(config.ranks), "--oversubscribe", "--bind-to", "none",
      // Open MPI's fastest setup: shared memory inside a machine, and waits that yield the core.
      "--mca", "pml", "ob1", "--mca", "btl", mpirun_has_other_machines() ? "self,vader,tcp" : "self,vader", "--mca",
      "mpi_yield_when_idle", "1",
      // All files in one folder, which mpirun and its daemons on other machines create if it is missing.
      "--mca", "orte_top_session_dir", folder, "--mca", "btl_vader_backing_directory", folder};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  if (mpirun_has_other_machines()) {
    command.insert(command.end(), {"--map-by", "slot"});
    for (const std::string& name : variables_for_ranks()) command.insert(command.end(), {"-x", name});
  }
  command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  const std::vector<std::string> arguments = own_arguments();
  command.insert(command.end(), arguments.begin(), arguments.end());
  // The last value of an option takes precedence.
  command.insert(command.end(), {"--world", "env"});
  if (config.progress) command.insert(command.end(), {"--progress", "on"});
  return command;
}

/// Sets the variables by which ranks find their launcher. Runs in the process that becomes mpirun.
void set_variables_of_mpirun() {
  if (mpirun_has_other_machines())
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  else
    setenv(kLauncherVariable, std::to_string(getpid()).c_str(), 1);
}

/// Holds all files of one mpirun. mpirun removes it when it exits; the destructor removes it if mpirun was killed.
class SessionFolder {
 public:
  SessionFolder() {
    // Open MPI's default for its segments. On a disk, write-back would disturb the measurement.
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

bool mpirun_has_other_machines() { return std::getenv("OMPI_MCA_orte_default_hostfile") != nullptr; }

std::string why_no_mpirun() {
  if (!SHUNT_HAVE_MPI) return "this build has no MPI (SHUNT_MPI)";
  return find_program("mpirun").empty() ? "there is no mpirun on PATH" : "";
}

int run_under_mpirun(const bench::ShuffleConfig& config) {
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
  // The launcher may have died before the line above.
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

World join_launched(bench::ShuffleConfig& config) {
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
