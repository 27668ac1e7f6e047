#include "support/traces.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

namespace shunt::test {
namespace {

void add_children(std::set<std::string>& traces) {
  std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
  for (int pid = 0; children >> pid;) traces.insert(fmt::format("child process {}", pid));
}

void add_descriptors(std::set<std::string>& traces) {
  std::error_code ignored;  // the descriptor that reads the folder is gone by the time its link is read
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto target = std::filesystem::read_symlink(entry.path(), ignored);
    if (!target.empty() && target.string().find("/fd") == std::string::npos)
      traces.insert(fmt::format("descriptor {} → {}", entry.path().filename().string(), target.string()));
  }
}

void add_files(const char* folder, std::set<std::string>& traces) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find("shunt") != std::string::npos) traces.insert(entry.path().string());
}

/// By inode: the names of the abstract sockets of shunt.
std::map<std::string, std::string> local_listeners() {
  std::map<std::string, std::string> names;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream columns(line);
    const std::vector<std::string> column{std::istream_iterator<std::string>(columns), {}};
    if (column.size() == 8 && column[7].starts_with("@shunt/")) names.emplace(column[6], column[7].substr(1));
  }
  return names;
}

}  // namespace

std::set<std::string> find_traces() {
  std::set<std::string> traces;
  add_children(traces);
  add_descriptors(traces);
  add_files("/dev/shm", traces);
  add_files("/tmp", traces);
  for (const auto& [inode, name] : local_listeners())
    traces.insert(fmt::format("abstract socket {} ({})", name, inode));
  return traces;
}

void expect_no_new_traces(const std::set<std::string>& before) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  // A trace counts if it is there each time one looks.
  std::set<std::string> left;
  for (bool first = true; first || !left.empty(); first = false) {
    const auto now = find_traces();
    std::set<std::string> fresh;
    std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::inserter(fresh, fresh.end()));
    if (!first) std::erase_if(fresh, [&](const std::string& trace) { return !left.contains(trace); });
    left = std::move(fresh);
    if (std::chrono::steady_clock::now() > deadline) break;
    if (!left.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const auto& trace : left) ADD_FAILURE() << "left behind: " << trace;
}

void LeavesNoTrace::SetUp() { before_ = find_traces(); }
void LeavesNoTrace::TearDown() { expect_no_new_traces(before_); }

}  // namespace shunt::test
