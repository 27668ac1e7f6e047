// Replaces recvmsg() in a rank that a test kills at the first message from another rank of its machine.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace {

bool is_victim() {
  const char* const rank = std::getenv("RANK");
  const char* const victim = std::getenv("HOSTS_RANK_KILLED_WHILE_ATTACHING");
  return rank && victim && std::string_view(rank) == victim;
}

bool is_local_socket(int socket) {
  int family = 0;
  socklen_t bytes = sizeof(family);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

}  // namespace

extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const auto received = static_cast<ssize_t>(syscall(SYS_recvmsg, socket, message, flags));
  if (received > 0 && is_victim() && is_local_socket(socket)) (void)raise(SIGKILL);
  return received;
}
