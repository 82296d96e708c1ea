// NVRTC: compiles kernels with g++ into a shared library, which is the "cubin".

#include "cuda.h"
#include "device_text.h"
#include "kernel_source.h"
#include "shared_sizes.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char** environ;

// The two headers at the front of each kernel's source.
asm(R"(
.section .rodata
pretend_gpu_device_text: .incbin "kernel_abi.h"
.incbin "device.h"
.byte 0
.text
)");
extern "C" const char pretend_gpu_device_text[] __attribute__((visibility("hidden")));

unsigned long device_version() {
  static const unsigned long version = [] {
    unsigned long hash = 0xcbf29ce484222325u;
    for (const char* c = pretend_gpu_device_text; *c; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001b3u;
    return hash;
  }();
  return version;
}

namespace {

enum nvrtcResult : int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_INTERNAL_ERROR = 11,
};

struct Program {
  std::string source, name;
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::string log, image;
  bool compiled = false;
  bool for_a_device = false;  // for sm_.. and not for compute_..: there is a cubin, not only PTX
};

std::mutex programs_mutex;
std::set<Program*>& programs() {
  static auto& programs = *new std::set<Program*>;
  return programs;
}
bool known(Program* program) {
  std::lock_guard lock(programs_mutex);
  return programs().count(program) != 0;
}

// A temporary folder, which is removed with its files.
class Folder {
 public:
  Folder() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base && *base ? base : "/tmp") + "/pretend_gpu.XXXXXX";
    if (!mkdtemp(path_.data())) path_.clear();
  }
  ~Folder() {
    for (auto& file : files_) unlink(file.c_str());
    if (!path_.empty()) rmdir(path_.c_str());
  }
  bool exists() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) {
    files_.insert(path_ + "/" + name);
    return path_ + "/" + name;
  }

 private:
  std::string path_;
  std::set<std::string> files_;
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Runs the compiler, and writes its messages to the log.
bool compiler(Folder& folder, std::vector<std::string> arguments, std::string& log) {
  const char* chosen = getenv("PRETEND_GPU_CXX");
  arguments.insert(arguments.begin(), chosen && *chosen ? chosen : "g++");
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::string said = folder.file("log");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child;
  int error = posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error) {
    log += arguments[0] + ": " + strerror(error) + "\n";
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  log += read(said);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Compiles what the options have left.
bool build(Program& program, const Options& options) {
  Folder folder;
  if (!folder.exists()) {
    program.log += "no temporary folder could be made\n";
    return false;
  }
  for (auto& [name, text] : program.headers) write(folder.file(name), text);
  std::string source = folder.file("source.cpp"), expanded = folder.file("expanded.ii");
  std::string thunks = folder.file("kernels.cpp"), library = folder.file("kernels.so");
  std::string name = program.name.empty() ? "default_program" : program.name;
  write(source, std::string(pretend_gpu_device_text) + "\n#line 1 \"" + name + "\"\n" + program.source + "\n");

  // First only the preprocessor: kernels can be written by macros.
  std::vector<std::string> arguments = {"-E", "-std=" + options.standard, "-w", "-nostdinc", "-nostdinc++",
                                        "-I" + folder.path()};
  arguments.insert(arguments.end(), options.macros.begin(), options.macros.end());
  arguments.insert(arguments.end(), {source, "-o", expanded});
  if (!compiler(folder, arguments, program.log)) return false;
  std::string text = read(expanded);
  write(thunks, text + describe_module(find_kernels(text), device_version(), options.architecture));

  arguments = {
      "-std=" + options.standard, "-O2", "-shared", "-fPIC", "-ffp-contract=off", "-w",
      // The symbols of a module are hidden from other modules and from the program.
      "-fvisibility=hidden", "-fno-gnu-unique", "-Wl,-Bsymbolic",
      // A thread's stack is small, and an overflow must reach the guard page.
      "-fstack-clash-protection", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing",
      // Each access is checked for its alignment; a misaligned one traps.
      "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",
      "-D__global__=", "-D__launch_bounds__(...)=", thunks, "-o", library};
  if (!compiler(folder, arguments, program.log)) return false;
  program.image = read(library);
  for (auto& [function, bytes] : shared_sizes(program.image.data(), program.image.size())) {
    if (bytes <= kSharedPerBlock) continue;
    program.log += "ptxas error: `" + function + "` uses too much shared data: " + std::to_string(bytes) + " bytes, at most " +
                   std::to_string(kSharedPerBlock) + "\n";
    return false;
  }
  return !program.image.empty();
}

// With PRETEND_GPU_CACHE, a folder, the same source is compiled once.
bool build_or_reuse(Program& program, const Options& options) {
  const char* cache = getenv("PRETEND_GPU_CACHE");
  if (!cache || !*cache) return build(program, options);
  std::ostringstream all;
  all << device_version() << '\0' << options.standard << '\0' << options.architecture << '\0' << program.name << '\0';
  for (auto& macro : options.macros) all << macro << '\0';
  for (auto& [name, text] : program.headers) all << name << '\0' << text << '\0';
  all << program.source;
  char file[64];
  std::string key = all.str();
  snprintf(file, sizeof file, "/%016zx%016zx.so", std::hash<std::string>()(key), std::hash<std::string>()(key + "2"));
  std::string path = cache + std::string(file);
  if (!(program.image = read(path)).empty()) return true;
  if (!build(program, options)) return false;
  mkdir(cache, 0777);
  std::string draft = path + "." + std::to_string(getpid()) + "." + std::to_string(reinterpret_cast<uintptr_t>(&program));
  write(draft, program.image);
  if (rename(draft.c_str(), path.c_str()) != 0) unlink(draft.c_str());
  return true;
}

nvrtcResult copy(const std::string& from, char* to) {
  if (!to) return NVRTC_ERROR_INVALID_INPUT;
  memcpy(to, from.data(), from.size());
  return NVRTC_SUCCESS;
}

}  // namespace

API nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (!major || !minor) return NVRTC_ERROR_INVALID_INPUT;
  *major = 12, *minor = 9;
  return NVRTC_SUCCESS;
}

API const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
  }
  return "NVRTC_ERROR unknown";
}

constexpr int kArchitectures[] = {75, 80, 86, 89, 90, 990};

API nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  if (!count) return NVRTC_ERROR_INVALID_INPUT;
  *count = sizeof kArchitectures / sizeof *kArchitectures;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  if (!architectures) return NVRTC_ERROR_INVALID_INPUT;
  memcpy(architectures, kArchitectures, sizeof kArchitectures);
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcCreateProgram(Program** to, const char* source, const char* name, int count,
                                   const char* const* headers, const char* const* names) {
  if (!to || !source || count < 0 || (count && (!headers || !names))) return NVRTC_ERROR_INVALID_INPUT;
  auto program = std::make_unique<Program>();
  program->source = source;
  program->name = name ? name : "";
  for (int i = 0; i < count; ++i) program->headers.emplace_back(names[i], headers[i]);
  std::lock_guard lock(programs_mutex);
  *to = program.release();
  programs().insert(*to);
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcDestroyProgram(Program** program) {
  if (!program) return NVRTC_ERROR_INVALID_INPUT;
  std::lock_guard lock(programs_mutex);
  if (!programs().erase(*program)) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcCompileProgram(Program* program, int count, const char* const* texts) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  if (count < 0 || (count && !texts)) return NVRTC_ERROR_INVALID_INPUT;
  program->log.clear();
  program->compiled = false;
  Options options;
  std::string wrong = read_options({texts, texts + count}, options);
  if (!wrong.empty()) {
    program->log = "nvrtc: error: invalid option: " + wrong + "\n";
    return NVRTC_ERROR_INVALID_OPTION;
  }
  program->for_a_device = options.architecture != 0;
  program->compiled = build_or_reuse(*program, options);
  return program->compiled ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

// PTX has the contents of the cubin, and exists for any architecture.
API nvrtcResult nvrtcGetPTXSize(Program* program, size_t* size) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  if (!size || !program->compiled) return NVRTC_ERROR_INVALID_INPUT;
  *size = program->image.size();
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetPTX(Program* program, char* to) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  return program->compiled ? copy(program->image, to) : NVRTC_ERROR_INVALID_INPUT;
}

API nvrtcResult nvrtcGetCUBINSize(Program* program, size_t* size) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  if (!size || !program->compiled) return NVRTC_ERROR_INVALID_INPUT;
  *size = program->for_a_device ? program->image.size() : 0;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetCUBIN(Program* program, char* to) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  return program->compiled && program->for_a_device ? copy(program->image, to) : NVRTC_ERROR_INVALID_INPUT;
}

// Both with the zero at the end.
API nvrtcResult nvrtcGetProgramLogSize(Program* program, size_t* size) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  if (!size) return NVRTC_ERROR_INVALID_INPUT;
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetProgramLog(Program* program, char* to) {
  if (!known(program)) return NVRTC_ERROR_INVALID_PROGRAM;
  return copy(program->log + '\0', to);
}
