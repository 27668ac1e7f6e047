#include "support/child_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace shunt::test {
namespace {

struct Report {
  bool returned = false;
  ErrorCode code = ErrorCode::internal;
  std::array<char, 1024> text = {};
};

[[noreturn]] void run(const std::function<void()>& body, int pipe) noexcept {
  Report report;
  const auto note = [&](ErrorCode code, const char* text) {
    report.code = code;
    std::strncpy(report.text.data(), text, report.text.size() - 1);
  };
  const bool had_failed = ::testing::Test::HasFailure();
  try {
    body();
    report.returned = had_failed || !::testing::Test::HasFailure();
    if (!report.returned) note(ErrorCode::internal, "an expectation of the child did not hold");
  } catch (const Error& error) {
    note(error.code(), error.what());
  } catch (const std::exception& error) {
    note(ErrorCode::internal, error.what());
  }
  (void)!write(pipe, &report, sizeof(report));
  _exit(report.returned ? 0 : 1);
}

}  // namespace

ChildProcess::ChildProcess(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
  std::fflush(nullptr);  // else buffered output would be printed by both
  pid_ = fork();
  if (pid_ == 0) run(body, ends[1]);
  close(ends[1]);
  pipe_ = ends[0];
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::exchange(other.pipe_, -1)) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) close(pipe_);
}

void ChildProcess::kill(int signal) const { ::kill(pid_, signal); }

void ChildProcess::stop() const {
  kill(SIGSTOP);
  (void)waitpid(pid_, nullptr, WUNTRACED);
}

std::optional<ChildEnd> ChildProcess::wait(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  Report report;
  const bool reported = read(pipe_, &report, sizeof(report)) == static_cast<ssize_t>(sizeof(report));
  ChildEnd end;
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.returned = reported && report.returned;
  end.code = report.code;
  end.error = report.text.data();
  return end;
}

}  // namespace shunt::test
