#include "cli/shuffle/supervise.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::cli {
namespace {

constexpr std::chrono::seconds kGrace{5};

[[noreturn]] void become(std::vector<std::string> command, int output, pid_t parent, const EndingSignals& signals,
                         const std::function<void()>& prepare) {
  // Signals to the group of this process (a terminal's, timeout's) would come on top of the one that is passed on, and
  // mpirun takes a second one for an order to leave its files behind.
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);  // it is in the terminal's background now, where a line on stderr may stop it
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before the line above
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

/// Passes output on to stdout, as mpirun would not say that nobody could read it.
class Output {
 public:
  explicit Output(int readable) : readable_(readable) { fcntl(readable_.get(), F_SETFL, O_NONBLOCK); }

  /// −1 once there is nothing more to come.
  [[nodiscard]] int descriptor() const { return readable_.get(); }
  /// errno of the write that failed; 0: none.
  [[nodiscard]] int error() const { return error_; }

  /// All that is there.
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

  /// Readable once it has ended.
  [[nodiscard]] int descriptor() const { return process_.get(); }
  [[nodiscard]] Deadline deadline() const { return deadline_; }

  /// Once only; see become().
  void ask_to_end() {
    if (was_asked_) return;
    was_asked_ = true;
    kill(pid_, SIGTERM);
    deadline_ = std::chrono::steady_clock::now() + kGrace;
  }

  /// After the deadline.
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

}  // namespace

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

}  // namespace shunt::cli
