#include "support/child_process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "support/eventually.hpp"

namespace shunt::test {

void ChildProcess::run(const std::function<void()>& body) const noexcept {
  const auto note = [&](ErrorCode code, const char* text) {
    report_->code = code;
    std::strncpy(report_->text.data(), text, report_->text.size() - 1);
  };
  const bool had_failed = ::testing::Test::HasFailure();
  try {
    body();
    report_->returned = had_failed || !::testing::Test::HasFailure();
    if (!report_->returned) note(ErrorCode::internal, "an expectation of the child did not hold");
  } catch (const Error& error) {
    note(error.code(), error.what());
  } catch (const std::exception& error) {
    note(ErrorCode::internal, error.what());
  }
  _exit(report_->returned ? 0 : 1);
}

ChildProcess::ChildProcess(const std::function<void()>& body) {
  std::fflush(nullptr);  // else buffered output would be printed by both
  pid_ = fork();
  if (pid_ == 0) run(body);
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
  return ChildEnd{WIFSIGNALED(status) ? WTERMSIG(status) : 0, report_->returned, report_->code, report_->text.data()};
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
