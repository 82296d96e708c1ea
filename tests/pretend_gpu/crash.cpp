// Settings, explanations of refused calls, and the message of a crash in a stream's work.

#include "device_state.h"
#include "kernel_abi.h"
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

const Settings& settings() {
  static const Settings settings = [] {
    auto number = [](const char* name, unsigned long otherwise) {
      const char* text = getenv(name);
      return text && *text ? strtoul(text, nullptr, 10) : otherwise;
    };
    return Settings{
        number("PRETEND_GPU_MEMORY", 4ul << 30),
        static_cast<unsigned>(number("PRETEND_GPU_DELAY_US", 0)),
        number("PRETEND_GPU_SHUFFLE", 0),
        number("PRETEND_GPU_EXPLAIN", 0) != 0,
    };
  }();
  return settings;
}

void explain(const char* function, const char* why, ...) {
  if (!settings().explain) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, why);
  vsnprintf(text, sizeof text, why, arguments);
  va_end(arguments);
  fprintf(stderr, "pretend GPU: %s: %s\n", function, text);
}

namespace {

// A signal handler reads these variables, so they must not be initialized at their first use.
#define SIGNAL_SAFE static thread_local __attribute__((tls_model("initial-exec")))
SIGNAL_SAFE const char* doing = nullptr;
SIGNAL_SAFE const pretend_thread* running = nullptr;

struct sigaction before[NSIG];

const char* meaning(int signal) {
  switch (signal) {
    case SIGSEGV: return "touched memory that is not the device's";
    case SIGBUS: return "touched memory that is not there";
    case SIGILL: return "made a misaligned access, or trapped";
    default: return "divided by zero";
  }
}

void crashed(int signal, siginfo_t* info, void*) {
  if (doing) {
    char text[512];
    int length = snprintf(text, sizeof text, "pretend GPU: %s %s (signal %d, address %p", doing,
                          meaning(signal), signal, info->si_addr);
    if (running) {
      auto t = running->thread, b = running->block;
      length += snprintf(text + length, sizeof text - length, ", thread (%u, %u, %u) of block (%u, %u, %u)",
                         t.x, t.y, t.z, b.x, b.y, b.z);
    }
    length += snprintf(text + length, sizeof text - length, ")\n");
    [[maybe_unused]] auto written = write(STDERR_FILENO, text, length);
    doing = nullptr;
    // After the return, the instruction faults again, and this time ends the process.
    ::signal(signal, SIG_DFL);
  } else {
    // The fault is not in a stream's work. After the return, the instruction faults again, under the previous
    // handler.
    sigaction(signal, &before[signal], nullptr);
  }
}

// If a thread overflows its stack, the handler needs another stack.
struct HandlerStack {
  static constexpr size_t kBytes = 64 << 10;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HandlerStack() { use(0); }
  ~HandlerStack() {
    use(SS_DISABLE);
    munmap(memory, kBytes);
  }
  void use(int flags) {
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = kBytes;
    stack.ss_flags = flags;
    if (memory != MAP_FAILED) sigaltstack(&stack, nullptr);
  }
};

}  // namespace

void now_doing(const char* what) { doing = what; }
void now_running(const pretend_thread* thread) { running = thread; }

void report_crashes() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction ours = {};
    ours.sa_sigaction = crashed;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(signal, &ours, &before[signal]);
  });
  static thread_local HandlerStack stack;
}
