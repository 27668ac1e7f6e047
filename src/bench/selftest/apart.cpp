#include "bench/selftest/apart.hpp"

#include <fcntl.h>
#include <poll.h>
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

namespace shunt::bench::selftest {
namespace {

constexpr char kSaid = 'S', kThrew = 'T', kReturned = 'R';  // what a line begins with
// A process that waits in a driver can't be killed; then nobody waits for it.
constexpr std::chrono::seconds kMostTimeToDie{5};

void write_line(int pipe, char kind, std::string text) {
  std::ranges::replace(text, '\n', ' ');
  text.insert(text.begin(), kind);
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(pipe, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return;  // nobody listens any more
    if (written > 0) done += static_cast<std::size_t>(written);
  }
}

/// Nothing may be thrown out of here: the caller's own code would go on in the child.
[[noreturn]] void run_child(const std::function<void(const Say&)>& part, pid_t parent, int pipe) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);         // it died before the line above
  (void)dup2(STDERR_FILENO, STDOUT_FILENO);  // UCX, for one, prints what it has to say among the results
  try {
    part([pipe](const std::string& line) { write_line(pipe, kSaid, line); });
    write_line(pipe, kReturned, "");
  } catch (const Error& error) {
    write_line(pipe, kThrew, fmt::format("error ({}): {}", to_string(error.code()), error.what()));
  } catch (const std::exception& error) {
    write_line(pipe, kThrew, fmt::format("error: {}", error.what()));
  }
  std::fflush(nullptr);
  _exit(0);
}

class Child {
 public:
  explicit Child(const std::function<void(const Say&)>& part) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("self-test: can't open a pipe");
    pipe_ = Descriptor(ends[0]);
    const Descriptor writable(ends[1]);
    std::fflush(nullptr);  // else buffered output would be printed by both
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

  /// Everything the child says from now on; false: the limit has passed.
  bool listen(const std::function<void(char, const std::string&)>& hear, Deadline limit) {
    std::string text;
    for (std::array<char, 4096> buffer{};;) {
      std::array<pollfd, 1> entries{pollfd{pipe_.get(), POLLIN, 0}};
      if (!wait_ready(entries, limit)) return false;
      const ssize_t count = read(pipe_.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return true;
      text.append(buffer.data(), static_cast<std::size_t>(count));
      for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
        if (end > 0) hear(text[0], text.substr(1, end - 1));
    }
  }

  /// The status as waitpid has it; nothing: it does not die.
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
    const auto status = wait(std::chrono::steady_clock::now() + kMostTimeToDie);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  Descriptor pipe_;  // readable end
};

}  // namespace

std::string run_apart(const std::function<void(const Say&)>& part, const std::function<void(const std::string&)>& hear,
                      Deadline limit) {
  const auto begin = std::chrono::steady_clock::now();
  Child child(part);
  std::optional<std::string> why_not = "it ended before it was through";
  const bool is_in_time = child.listen(
      [&](char kind, const std::string& text) {
        if (kind == kSaid) hear(text);
        if (kind == kThrew) why_not = text;
        if (kind == kReturned) why_not = "";
      },
      limit);
  if (is_in_time) {
    const auto status = child.wait(std::chrono::steady_clock::now() + kMostTimeToDie);
    if (status && WIFSIGNALED(*status))
      return fmt::format("its process was ended by signal {} ({})", WTERMSIG(*status), strsignal(WTERMSIG(*status)));
    return *why_not;
  }
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool is_dead = child.kill().has_value();
  return fmt::format("it did not end within {:.0f} s and was killed{}", seconds,
                     is_dead ? "" : ", but its process does not die: a driver holds it");
}

}  // namespace shunt::bench::selftest
