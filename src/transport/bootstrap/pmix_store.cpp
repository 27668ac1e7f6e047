#include "transport/bootstrap/pmix_store.hpp"

#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include "core/build.hpp"
#include "core/fail.hpp"

namespace shunt::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimeoutSeconds = 1;
constexpr std::chrono::milliseconds kPause{20};

void check(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS) fail(ErrorCode::system, "PMIx can't {}: {}", what, PMIx_Error_string(status));
}

/// This process's name at its launcher. PMIx counts its users, so MPI in the same process is not affected.
const pmix_proc_t& self() {
  static pid_t user = 0;
  static const pmix_proc_t process = [] {
    pmix_proc_t started{};
    check(PMIx_Init(&started, nullptr, 0), "start");
    user = getpid();
    // A launcher takes a rank that ends without this for a failed one. Not in a child that was forked meanwhile: the
    // connection is its parent's.
    std::atexit([] {
      if (getpid() == user) PMIx_Finalize(nullptr, 0);
    });
    return started;
  }();
  return process;
}

struct Answer {
  pmix_status_t status = PMIX_SUCCESS;
  std::string text;
};

/// PMIx owns it until it has answered, which may be long after the caller's deadline.
struct Question {
  std::promise<Answer> answer;
  pmix_info_t options[2] = {};

  Question() {
    PMIX_INFO_LOAD(&options[0], PMIX_TIMEOUT, &kTimeoutSeconds, PMIX_INT);
    // What rank 0 has published before, as MPI_Init does, must not count as all that it will publish.
    constexpr bool kYes = true;
    PMIX_INFO_LOAD(&options[1], PMIX_GET_REFRESH_CACHE, &kYes, PMIX_BOOL);
  }
  ~Question() {
    for (pmix_info_t& option : options) PMIX_INFO_DESTRUCT(&option);
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;
};

void on_answer(pmix_status_t status, pmix_value_t* value, void* asked) {
  const std::unique_ptr<Question> question(static_cast<Question*>(asked));
  const bool is_text = status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING;
  question->answer.set_value({is_text || status != PMIX_SUCCESS ? status : PMIX_ERR_TYPE_MISMATCH,
                              is_text ? value->data.string : std::string()});
}

/// Empty while rank 0 has published nothing, and after the deadline. The blocking call has none when rank 0 is on
/// another host and has published nothing yet.
std::optional<std::string> ask_rank_0(const std::string& key, Deadline deadline) {
  pmix_proc_t rank_0 = self();
  rank_0.rank = 0;
  auto question = std::make_unique<Question>();
  auto answer = question->answer.get_future();
  check(PMIx_Get_nb(&rank_0, key.c_str(), question->options, std::size(question->options), on_answer, question.get()),
        "ask for what rank 0 has published");
  (void)question.release();
  if (answer.wait_until(deadline) != std::future_status::ready) return std::nullopt;
  const auto [status, text] = answer.get();
  if (status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT) return std::nullopt;
  check(status, "read what rank 0 has published");
  return text;
}

void publish(const std::string& key, const std::string& text) {
  (void)self();
  pmix_value_t value{};
  std::string copy = text;
  value.type = PMIX_STRING;
  value.data.string = copy.data();
  check(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "publish");
  check(PMIx_Commit(), "publish");
}

std::optional<std::string> read_from_rank_0(const std::string& key, Deadline deadline) {
  while (Clock::now() < deadline) {
    if (auto text = ask_rank_0(key, deadline)) return text;
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline - Clock::now()));
  }
  return std::nullopt;
}

}  // namespace
}  // namespace shunt::bootstrap

extern "C" [[gnu::visibility("default")]] shunt::Backend shunt_backend() {
  static constexpr shunt::bootstrap::PmixStore store{.publish = shunt::bootstrap::publish,
                                                     .read_from_rank_0 = shunt::bootstrap::read_from_rank_0};
  return {"pmix", shunt::build_id().data(), &store};
}
