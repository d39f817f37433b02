#include "launch/signals.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>

#include "skein/error.h"

namespace skein {

SignalQueue::SignalQueue() {
  sigset_t handled;
  sigemptyset(&handled);
  // Ignored signals are queued too once they are blocked. SIGINT is taken even so: a script's
  // background jobs ignore it, and `kill -INT` to one of them is meant. nohup is meant as well.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGTSTP}) sigaddset(&handled, number);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaddset(&handled, SIGHUP);
  queue_ = FileDescriptor(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!queue_.valid())
    throw Error(fmt::format("cannot wait for signals: {}", std::strerror(errno)));
  pthread_sigmask(SIG_BLOCK, &handled, &before_);
}

SignalQueue::~SignalQueue() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalQueue::next() {
  signalfd_siginfo info;
  if (read(queue_.get(), &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace skein
