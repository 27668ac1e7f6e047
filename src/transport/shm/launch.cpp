#include "transport/shm/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "core/fail.hpp"
#include "transport/shm/socket.hpp"

namespace shunt::shm {
namespace {

using Clock = std::chrono::steady_clock;

/// A failure on its way from a child to the launcher; one write, smaller than PIPE_BUF, so never torn.
struct Report {
  ErrorCode code;
  bool is_root;
  std::array<char, 2048> text;
};

struct Child {
  pid_t pid = -1;
  Descriptor report;  // readable end; its end of file means that the child is gone
};

std::string random_job() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) fail_errno("getrandom");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

[[noreturn]] void run_child(const RankBody& body, RankId rank, const std::string& job, pid_t launcher, int report_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  const auto failure = body(rank, job);
  if (failure) {
    Report report{failure->code, failure->is_root, {}};
    std::strncpy(report.text.data(), failure->text.c_str(), report.text.size() - 1);
    (void)!write(report_fd, &report, sizeof(report));
  }
  // The launcher's atexit handlers and static objects are not this process's business.
  std::fflush(nullptr);
  _exit(failure ? 1 : 0);
}

Child start(const RankBody& body, RankId rank, const std::string& job) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("can't open a pipe");
  Descriptor readable(ends[0]);
  Descriptor writable(ends[1]);
  std::fflush(nullptr);  // else buffered output would be printed by both
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail_errno("can't start rank {}", rank);
  if (pid == 0) run_child(body, rank, job, launcher, writable.get());
  return {pid, std::move(readable)};
}

/// Kills what is left, so that a failure in starting leaves nobody behind.
class Family {
 public:
  ~Family() {
    kill_all();
    for (Child& child : children_)
      if (child.pid > 0) waitpid(child.pid, nullptr, 0);
  }

  void add(Child child) { children_.push_back(std::move(child)); }
  void kill_all() {
    for (const Child& child : children_)
      if (child.pid > 0) kill(child.pid, SIGKILL);
  }
  [[nodiscard]] bool empty() const {
    return std::none_of(children_.begin(), children_.end(), [](const Child& child) { return child.pid > 0; });
  }

  /// Waits until some child has ended or the deadline has passed; appends what went wrong.
  void await(Clock::time_point deadline, std::vector<Failure>& failures) {
    std::vector<pollfd> entries;
    for (const Child& child : children_) entries.push_back({child.pid > 0 ? child.report.get() : -1, POLLIN, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (poll(entries.data(), entries.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000))) <= 0) return;
    for (std::size_t i = 0; i < children_.size(); ++i)
      if (entries[i].revents != 0) reap(RankId(i), children_[i], failures);
  }

 private:
  static void reap(RankId rank, Child& child, std::vector<Failure>& failures) {
    Report report{};
    const bool reported = read(child.report.get(), &report, sizeof(report)) == static_cast<ssize_t>(sizeof(report));
    int status = 0;
    waitpid(child.pid, &status, 0);
    child.pid = -1;
    if (reported)
      failures.push_back({rank, report.code, report.text.data(), report.is_root});
    else if (WIFSIGNALED(status))
      failures.push_back({rank, ErrorCode::peer_lost,
                          fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), strsignal(WTERMSIG(status))),
                          true});
    else if (WEXITSTATUS(status) != 0)
      failures.push_back({rank, ErrorCode::peer_lost, fmt::format("rank {} exited with status {}", rank, WEXITSTATUS(status)), true});
  }

  std::vector<Child> children_;
};

}  // namespace

std::vector<Failure> launch(std::int32_t num_ranks, const RankBody& body, std::chrono::milliseconds grace) {
  const std::string job = random_job();
  Family family;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) family.add(start(body, RankId(rank), job));

  std::vector<Failure> failures;
  auto deadline = Clock::time_point::max();
  while (!family.empty()) {
    if (!failures.empty() && deadline == Clock::time_point::max()) deadline = Clock::now() + grace;
    if (Clock::now() >= deadline) family.kill_all();
    family.await(deadline, failures);
  }
  return failures;
}

}  // namespace shunt::shm
