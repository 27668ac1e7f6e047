#include "bench/selftest/processes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "core/descriptor.hpp"
#include "core/fail.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/shm/launch.hpp"

namespace shunt::bench::selftest {
namespace {

using namespace std::chrono_literals;

constexpr char kLine = 'S', kError = 'T', kReturned = 'R';  // first character of each line in the pipe
// A process that waits in a driver can't be killed; after this time it is abandoned.
constexpr std::chrono::seconds kExitLimit{5};

void write_line(int pipe, char kind, std::string text) {
  std::ranges::replace(text, '\n', ' ');
  text.insert(text.begin(), kind);
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(pipe, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return;  // the parent is gone
    if (written > 0) done += static_cast<std::size_t>(written);
  }
}

/// noexcept: an exception that left this function would continue in the caller's code, in the child.
[[noreturn]] void run_child(const std::function<void(const SendLine&)>& part, pid_t parent, int pipe) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);         // the parent died before the line above
  (void)dup2(STDERR_FILENO, STDOUT_FILENO);  // libraries such as UCX print to stdout
  try {
    part([pipe](const std::string& line) { write_line(pipe, kLine, line); });
    write_line(pipe, kReturned, "");
  } catch (const Error& error) {
    write_line(pipe, kError, fmt::format("error ({}): {}", to_string(error.code()), error.what()));
  } catch (const std::exception& error) {
    write_line(pipe, kError, fmt::format("error: {}", error.what()));
  }
  std::fflush(nullptr);
  _exit(0);
}

class Child {
 public:
  explicit Child(const std::function<void(const SendLine&)>& part) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("self-test: can't open a pipe");
    pipe_ = Descriptor(ends[0]);
    const Descriptor writable(ends[1]);
    std::fflush(nullptr);  // otherwise both processes would print buffered output
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) fail_errno("self-test: can't start a process");
    if (pid_ == 0) run_child(part, parent, writable.get());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) (void)kill();
  }

  /// Calls on_line for every line until the child closes the pipe. False: the limit has passed.
  bool read_lines(const std::function<void(char, const std::string&)>& on_line, Deadline limit) {
    std::string text;
    for (std::array<char, 4096> buffer{};;) {
      std::array<pollfd, 1> entries{pollfd{pipe_.get(), POLLIN, 0}};
      if (!wait_ready(entries, limit)) return false;
      const ssize_t count = read(pipe_.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return true;
      text.append(buffer.data(), static_cast<std::size_t>(count));
      for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
        if (end > 0) on_line(text[0], text.substr(1, end - 1));
    }
  }

  /// The status of waitpid(); nothing if the child has not ended by the limit.
  std::optional<int> wait(Deadline limit) {
    int status = 0;
    for (;;) {
      const pid_t ended = waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) break;
      if (ended < 0 && errno != EINTR) break;
      if (std::chrono::steady_clock::now() > limit) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pid_ = -1;
    return status;
  }
  std::optional<int> kill() {
    ::kill(pid_, SIGKILL);
    const auto status = wait(std::chrono::steady_clock::now() + kExitLimit);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  Descriptor pipe_;  // readable end
};

/// Ranks of one machine share an IPC namespace. A process without the permission to make one can do so as root of a
/// user namespace, if the system allows these.
void leave_machine() {
  if (unshare(CLONE_NEWIPC) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWIPC) == 0) return;
  fail_errno("this process may not make an IPC namespace (a container may lack CAP_SYS_ADMIN)");
}

void run_rank(RankId rank, const std::string& job, const Topology& topology, const Environment& environment,
              const std::function<void(World&)>& body) {
  const auto ranks =
      bootstrap::join_rendezvous(bootstrap::on_one_machine(rank, topology.num_ranks(), job, environment.join));
  World world = World::create(*ranks, {.topology = topology, .environment = environment});
  body(world);
}

/// True for errors that are caused by an error of another rank.
bool is_consequence(ErrorCode code) { return code == ErrorCode::peer_failed || code == ErrorCode::peer_lost; }

shm::Failure failure_of(RankId rank, const Error& error) {
  return {rank, error.code(), error.what(), !is_consequence(error.code())};
}

/// The failure that caused the others.
const shm::Failure& root_of(const std::vector<shm::Failure>& failures) {
  for (const shm::Failure& failure : failures)
    if (failure.is_root) return failure;
  return failures.front();
}

}  // namespace

std::string run_in_child(const std::function<void(const SendLine&)>& part,
                         const std::function<void(const std::string&)>& on_line, Deadline limit) {
  const auto begin = std::chrono::steady_clock::now();
  Child child(part);
  std::optional<std::string> why_not = "it ended before it was done";
  const bool is_in_time = child.read_lines(
      [&](char kind, const std::string& text) {
        if (kind == kLine) on_line(text);
        if (kind == kError) why_not = text;
        if (kind == kReturned) why_not = "";
      },
      limit);
  if (is_in_time) {
    const auto status = child.wait(std::chrono::steady_clock::now() + kExitLimit);
    if (status && WIFSIGNALED(*status))
      return fmt::format("its process was ended by signal {} ({})", WTERMSIG(*status), strsignal(WTERMSIG(*status)));
    return *why_not;
  }
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool is_dead = child.kill().has_value();
  return fmt::format("it did not end within {:.0f} s and was killed{}", seconds,
                     is_dead ? "" : ", but its process does not die: it is blocked in a driver");
}

std::string why_no_far_processes() {
  return run_in_child([](const SendLine&) { leave_machine(); }, [](const std::string&) {},
                      std::chrono::steady_clock::now() + 10s);
}

void spawn_far_processes(const Topology& topology, const Environment& environment,
                         const std::function<void(World&)>& body) {
  const std::chrono::milliseconds grace = environment.liveness + 2s;
  const auto run_machine = [&](RankId machine, const std::string& job,
                               const std::function<void()>& joined) -> std::optional<shm::Failure> {
    leave_machine();
    joined();  // this process itself joins nothing; its ranks do
    const auto ranks = topology.ranks(NodeId(machine.value));
    const auto run = [&](RankId local, const std::string&,
                         const std::function<void()>& has_joined) -> std::optional<shm::Failure> {
      const RankId rank = ranks[local.index()];
      try {
        has_joined();
        run_rank(rank, job, topology, environment, body);
        return std::nullopt;
      } catch (const Error& error) {
        return failure_of(rank, error);
      }
    };
    const auto failures = shm::launch(static_cast<std::int32_t>(ranks.size()), run, grace);
    if (failures.empty()) return std::nullopt;
    return root_of(failures);
  };
  const auto failures = shm::launch(topology.num_nodes(), run_machine, grace);
  if (failures.empty()) return;
  const shm::Failure& root = root_of(failures);
  throw Error(root.code, root.text);
}

}  // namespace shunt::bench::selftest
