#include "transport/shm/launch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstring>

#include "core/fail.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::shm {
namespace {

/// What a child writes to the launcher. One write each, never torn; two of them fit the smallest pipe, so none blocks.
struct Report {
  enum class Stage { started, joined, returned, handled, failed };
  Stage stage = Stage::started;
  ErrorCode code = ErrorCode::internal;
  bool is_root = false;
  std::array<char, 1900> text = {};
};
static_assert(2 * sizeof(Report) <= PIPE_BUF);

void send_report(const Descriptor& pipe, const Report& report) { (void)!write(pipe.get(), &report, sizeof(report)); }

Report report_of(const Failure& failure) {
  const auto stage = failure.is_handled ? Report::Stage::handled : Report::Stage::failed;
  Report report{stage, failure.code, failure.is_root, {}};
  std::strncpy(report.text.data(), failure.text.c_str(), report.text.size() - 1);
  return report;
}

/// Nothing may be thrown out of here: the launcher's own code would go on in the child.
[[noreturn]] void run_child(const RankBody& body, RankId rank, const std::string& job, pid_t launcher,
                            const Descriptor& pipe) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before the line above
  Report last{.stage = Report::Stage::returned};
  try {
    const auto failure = body(rank, job, [&] { send_report(pipe, {.stage = Report::Stage::joined}); });
    if (failure) last = report_of(*failure);
  } catch (const std::exception& error) {
    last = report_of({rank, ErrorCode::internal, fmt::format("rank {} failed: {}", rank, error.what()), true});
  }
  std::fflush(nullptr);
  send_report(pipe, last);
  // Skips the launcher's atexit handlers and static objects.
  _exit(last.stage == Report::Stage::failed ? 1 : 0);
}

class Child {
 public:
  static Child start(const RankBody& body, RankId rank, const std::string& job) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail_errno("can't open a pipe");
    Child child;
    child.rank_ = rank;
    child.pipe_ = Descriptor(ends[0]);
    const Descriptor writable(ends[1]);
    std::fflush(nullptr);  // else buffered output would be printed by both
    const pid_t launcher = getpid();
    child.pid_ = fork();
    if (child.pid_ < 0) fail_errno("can't start rank {}", rank);
    if (child.pid_ == 0) run_child(body, rank, job, launcher, writable);
    child.process_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid_, 0)));
    if (child.process_.valid()) return child;
    const int cause = errno;
    child.kill();
    child.wait_for_end();
    errno = cause;
    fail_errno("can't watch rank {}", rank);
  }

  Child(Child&& other) noexcept = default;
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (!running()) return;
    kill();
    wait_for_end();
  }

  [[nodiscard]] bool running() const { return process_.valid(); }
  /// Readable once the process has ended, even if other processes hold its pipe.
  [[nodiscard]] int process() const { return process_.get(); }

  [[nodiscard]] bool has_joined() {
    read_reports();
    return last_.stage != Report::Stage::started;
  }

  [[nodiscard]] bool is_stopped() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }

  void kill(const char* why = "had to be ended after the world had failed") {
    why_killed_ = why;
    ::kill(pid_, SIGKILL);
  }

  /// Call once process() is readable.
  std::optional<Failure> reap() {
    const int status = wait_for_end();
    read_reports();
    if (last_.stage == Report::Stage::returned) return std::nullopt;
    if (last_.stage == Report::Stage::failed || last_.stage == Report::Stage::handled)
      return Failure{rank_, last_.code, last_.text.data(), last_.is_root, last_.stage == Report::Stage::handled};
    return Failure{rank_, ErrorCode::peer_lost, fmt::format("rank {} {}", rank_, describe_end(status)), !why_killed_};
  }

 private:
  Child() = default;

  int wait_for_end() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = Descriptor();
    return status;
  }

  void read_reports() {
    for (Report report; read(pipe_.get(), &report, sizeof(report)) == static_cast<ssize_t>(sizeof(report));)
      last_ = report;
  }

  [[nodiscard]] std::string describe_end(int status) const {
    if (why_killed_) return why_killed_;
    if (WIFSIGNALED(status))
      return fmt::format("was killed by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)),
                         WTERMSIG(status) == SIGKILL ? ", perhaps by the system, for want of memory" : "");
    return fmt::format("exited with status {} before its body returned", WEXITSTATUS(status));
  }

  RankId rank_;
  pid_t pid_ = -1;
  const char* why_killed_ = nullptr;  // by the launcher
  Descriptor process_;                // a pidfd; none once the child has been waited for
  Descriptor pipe_;                   // readable end
  Report last_;
};

using Children = std::vector<Child>;

/// Waits until some child has ended and appends its failure, if any; false: the deadline has passed.
bool await_end(Children& children, Deadline deadline, std::vector<Failure>& failures) {
  std::vector<pollfd> entries;
  for (const Child& child : children) entries.push_back({child.running() ? child.process() : -1, POLLIN, 0});
  if (!wait_ready(entries, deadline)) return false;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (entries[i].revents == 0) continue;
    if (auto failure = children[i].reap()) failures.push_back(std::move(*failure));
  }
  return true;
}

}  // namespace

std::vector<Failure> launch(std::int32_t num_ranks, const RankBody& body, std::chrono::milliseconds grace) {
  const std::string job = bootstrap::hex(bootstrap::draw_nonce());
  Children children;
  children.reserve(static_cast<std::size_t>(num_ranks));
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) children.push_back(Child::start(body, RankId(rank), job));

  const auto after_grace = [&] { return std::chrono::steady_clock::now() + grace; };
  const auto any_running = [&] { return std::ranges::any_of(children, &Child::running); };
  std::vector<Failure> failures;
  while (any_running() && std::ranges::all_of(failures, &Failure::is_handled)) {
    const bool all_run = std::ranges::all_of(children, &Child::running);
    if (await_end(children, all_run ? Deadline::max() : after_grace(), failures)) continue;
    for (Child& child : children)
      if (child.running() && child.is_stopped()) child.kill("was stopped, and had to be ended");
  }

  // Ranks that are still joining would wait for the failed rank, and no fault can reach them.
  for (Child& child : children)
    if (child.running() && !child.has_joined()) child.kill();
  const Deadline deadline = after_grace();
  while (any_running() && await_end(children, deadline, failures)) {
  }

  for (Child& child : children)
    if (child.running()) child.kill();
  while (any_running()) await_end(children, Deadline::max(), failures);
  if (std::ranges::all_of(failures, &Failure::is_handled)) failures.clear();
  return failures;
}

}  // namespace shunt::shm
