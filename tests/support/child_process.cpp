#include "support/child_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "support/eventually.hpp"

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
  pipe_ = Descriptor(ends[0]);
  const Descriptor writable(ends[1]);
  std::fflush(nullptr);  // else buffered output would be printed by both
  pid_ = fork();
  if (pid_ == 0) run(body, writable.get());
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  kill(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::kill(int signal) const { ::kill(pid_, signal); }

std::optional<ChildEnd> ChildProcess::wait(std::chrono::seconds limit) {
  int status = 0;
  if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) != 0; }, limit)) return std::nullopt;
  pid_ = -1;
  Report report;
  const bool reported = read(pipe_.get(), &report, sizeof(report)) == static_cast<ssize_t>(sizeof(report));
  return ChildEnd{WIFSIGNALED(status) ? WTERMSIG(status) : 0, reported && report.returned, report.code,
                  report.text.data()};
}

void expect_returned(ChildProcess& child, std::chrono::seconds limit) {
  const auto end = child.wait(limit);
  ASSERT_TRUE(end) << "hangs";
  EXPECT_TRUE(end->returned) << end->error;
}

void expect_error(ChildProcess& child, ErrorCode code, const std::string& words) {
  const auto end = child.wait(std::chrono::seconds(40));
  ASSERT_TRUE(end) << "hangs";
  EXPECT_EQ(to_string(end->code), to_string(code)) << end->error;
  EXPECT_NE(end->error.find(words), std::string::npos) << end->error;
}

}  // namespace shunt::test
