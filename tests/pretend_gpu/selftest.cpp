#include "selftest.h"
#include "selftest_kernels.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <numeric>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#define DEFINE(name, ...) int (*name)(__VA_ARGS__);
DRIVER_FUNCTIONS(DEFINE)
NVRTC_FUNCTIONS(DEFINE)
BLAS_FUNCTIONS(DEFINE)
DNN_FUNCTIONS(DEFINE)

int failures = 0;

void check(bool right, const char* what, const char* file, int line) {
  if (right) return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  ++failures;
}

void check_equal(long long value, long long expected, const char* what, const char* file, int line) {
  if (value == expected) return;
  fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, what, value, expected);
  ++failures;
}

Buffer::Buffer(size_t count) : count(count) { OK(cuMemAlloc_v2(&p, count * sizeof(float))); }
Buffer::Buffer(const std::vector<float>& values) : Buffer(values.size()) {
  OK(cuMemcpyHtoD_v2(p, values.data(), count * sizeof(float)));
}
Buffer::~Buffer() { OK(cuMemFree_v2(p)); }
std::vector<float> Buffer::read() const {
  std::vector<float> values(count);
  OK(cuCtxSynchronize());
  OK(cuMemcpyDtoH_v2(values.data(), p, count * sizeof(float)));
  return values;
}

std::vector<float> random_floats(size_t count) {
  static uint64_t state = 1;
  std::vector<float> values(count);
  for (float& x : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<float>(state >> 40) / (1 << 23) - 1.0f;
  }
  return values;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::isnan(a[i] - b[i]) ? INFINITY : std::fmax(largest, std::fabs(a[i] - b[i]));
  return largest;
}

namespace {

void load(const char* file, std::initializer_list<std::pair<const char*, void*>> functions) {
  void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  for (auto [name, to] : functions) {
    void* function = dlsym(library, name);
    CHECK(function);
    memcpy(to, &function, sizeof function);
  }
}

void load_all() {
#define NAME(name, ...) {#name, &name},
  load("libcuda.so.1", {DRIVER_FUNCTIONS(NAME)});
  load("libnvrtc.so.12", {NVRTC_FUNCTIONS(NAME)});
  load("libcublas.so.12", {BLAS_FUNCTIONS(NAME)});
  load("libcudnn.so.9", {DNN_FUNCTIONS(NAME)});
}

int compile(const char* source, std::string* log, void** module, std::vector<const char*> options) {
  void* program;
  OK(nvrtcCreateProgram(&program, source, "selftest.cu", 0, nullptr, nullptr));
  int result = nvrtcCompileProgram(program, options.size(), options.data());
  size_t size = 0;
  OK(nvrtcGetProgramLogSize(program, &size));
  log->resize(size);
  OK(nvrtcGetProgramLog(program, log->data()));
  if (result == 0) {
    // A cubin is there only for a device's own architecture.
    OK(nvrtcGetCUBINSize(program, &size));
    bool cubin = size != 0;
    if (!cubin) OK(nvrtcGetPTXSize(program, &size));
    std::vector<char> image(size);
    OK(cubin ? nvrtcGetCUBIN(program, image.data()) : nvrtcGetPTX(program, image.data()));
    OK(cuModuleLoadData(module, image.data()));
  }
  OK(nvrtcDestroyProgram(&program));
  CHECK(!program);
  return result;
}

void* module = nullptr;
void* stream = nullptr;

void* kernel(const char* name) {
  void* function = nullptr;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

template <class... A> int launch(const char* name, unsigned blocks, unsigned threads, A... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  return cuLaunchKernel(kernel(name), blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr);
}

void test_compiler() {
  std::string log;
  EXPECT(6, compile("extern \"C\" __global__ void broken( {}", &log, nullptr, {}));
  CHECK(log.find("selftest.cu:1") != std::string::npos);
  EXPECT(5, compile("", &log, nullptr, {"--no-such-option"}));
  // NVRTC has no headers, so the functions that headers declare are missing, too.
  EXPECT(6, compile("#include <vector>", &log, nullptr, {}));
  EXPECT(6, compile("extern \"C\" __global__ void k(uint32_t x) {}", &log, nullptr, {}));
  EXPECT(6, compile("extern \"C\" __global__ void k(float* p) { __shared__ float x[12289]; x[threadIdx.x] = 1; __syncthreads(); *p = x[0]; }",
                    &log, nullptr, {}));
  CHECK(log.find("shared data") != std::string::npos);
  void* constants = nullptr;
  OK(compile("extern \"C\" __global__ void k(int* p) { *p = VALUE; }", &log, &constants,
             {"--gpu-architecture=sm_990", "-D", "OTHER", "-DVALUE=3", "--std=c++17", "--fmad=false"}));
  OK(cuModuleUnload(constants));
  EXPECT(400, cuModuleUnload(constants));
  OK(compile(kKernels, &log, &module, {"--gpu-architecture=sm_990"}));
  void* none;
  EXPECT(500, cuModuleGetFunction(&none, module, "no_c_name"));
  EXPECT(500, cuModuleGetFunction(&none, module, "nothing"));
  EXPECT(200, cuModuleLoadData(&none, "not an image"));
  int threads = 0;
  OK(cuFuncGetAttribute(&threads, 0, kernel("select")));
  CHECK(threads == 256);
  int shared = 0;
  OK(cuFuncGetAttribute(&shared, 1, kernel("transpose")));
  CHECK(shared >= 32 * 33 * 4 && shared < 32 * 33 * 4 + 1000);
  // The one that `test_kernels` launches first.
  size_t offset = 0, size = 0;
  std::vector<size_t> offsets, sizes;
  while (cuFuncGetParamInfo(kernel("parameters"), sizes.size(), &offset, &size) == 0) {
    offsets.push_back(offset);
    sizes.push_back(size);
  }
  CHECK((offsets == std::vector<size_t>{0, 8, 16, 24, 48, 64}));
  CHECK((sizes == std::vector<size_t>{8, 1, 8, 24, 16, 8}));
}

void test_kernels() {
  struct Shape {
    int rows, columns;
    float scale;
    long long offset;
  };
  struct alignas(16) Float4 {
    float x, y, z, w;
  };
  Buffer out(8);
  OK(launch("parameters", 1, 32, out.p, (unsigned char)7, 2.5, Shape{3, 4, 0.5f, 1 << 20}, Float4{1, 2, 3, 4}, -9ll));
  CHECK((out.read() == std::vector<float>{7, 2.5, 3, 4, 0.5, 1 << 20, 5, -9}));

  size_t n = 100003;
  auto x = random_floats(n), y = random_floats(n);
  Buffer dx(x), dy(y);
  OK(launch("axpy", (n + 255) / 256, 256, dy.p, dx.p, 3.0f, n));
  for (size_t i = 0; i < n; ++i) y[i] = 3.0f * x[i] + y[i];
  CHECK(dy.read() == y);
  OK(launch("select", (n + 255) / 256, 256, dy.p, dx.p, (int)n));
  for (size_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0.0f;
  CHECK(dy.read() == y);
  OK(launch("index", (n + 255) / 256, 256, dy.p, dx.p, (int)n));
  for (size_t i = 0; i < n; ++i) y[i] = tanhf(x[i]) + expf(x[i]) * (1.0f / sqrtf(fabsf(x[i]) + 1.0f));
  CHECK(dy.read() == y);
  EXPECT(1, launch("select", 1, 257, dy.p, dx.p, 1));

  Buffer sums(17);
  OK(launch("sum_rows", 17, 256, sums.p, dx.p, 1000));
  std::vector<float> expected(17);
  for (int row = 0; row < 17; ++row) expected[row] = std::accumulate(&x[row * 1000], &x[row * 1000 + 1000], 0.0);
  CHECK(largest_difference(sums.read(), expected) < 1e-4f);

  int rows = 100, columns = 77;
  Buffer transposed(rows * columns);
  void* pointers[] = {&transposed.p, &dx.p, &rows, &columns};
  OK(cuLaunchKernel(kernel("transpose"), 3, 4, 1, 32, 32, 1, 0, stream, pointers, nullptr));
  auto got = transposed.read();
  bool right = true;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) right &= got[j * rows + i] == x[i * columns + j];
  }
  CHECK(right);

  Buffer wrong(32);
  OK(launch("warps", 1, 32, wrong.p));
  for (float value : wrong.read()) {
    int bits;
    memcpy(&bits, &value, 4);
    EXPECT(0, bits);
  }
}

std::vector<int> ints(const Buffer& buffer) {
  auto floats = buffer.read();
  std::vector<int> values(floats.size());
  memcpy(values.data(), floats.data(), floats.size() * 4);
  return values;
}

void test_maths() {
  std::string log;
  void* maths = nullptr;
  if (compile(kMaths, &log, &maths, {}) != 0) fprintf(stderr, "%s\n", log.c_str());
  CHECK(maths);
  void* function;
  OK(cuModuleGetFunction(&function, maths, "maths"));
  Buffer wrong(1), line(1);
  OK(cuMemsetD8Async(wrong.p, 0, 4, stream));
  OK(cuMemsetD8Async(line.p, 0, 4, stream));
  float one = 1;
  void* pointers[] = {&wrong.p, &line.p, &one};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, nullptr));
  EXPECT(0, ints(wrong)[0]);
  EXPECT(0, ints(line)[0]);
  OK(cuModuleUnload(maths));
}

void test_blocks() {
  Buffer counts(3), sum(1), last(2);
  for (auto buffer : {&counts, &sum, &last}) OK(cuMemsetD8Async(buffer->p, 0, buffer->count * 4, stream));
  OK(launch("atomics", 50, 96, counts.p, sum.p, last.p));
  CHECK((ints(counts) == std::vector<int>{50 * 96, 49, -49}));
  CHECK(sum.read()[0] == 25.0f);

  Buffer cells(2 * 3 * 4 * 30);
  OK(cuMemsetD32Async(cells.p, 0, cells.count, stream));
  void* pointers[] = {&cells.p};
  OK(cuLaunchKernel(kernel("grid3"), 2, 3, 4, 5, 3, 2, 0, stream, pointers, nullptr));
  auto got = ints(cells);
  bool right = true;
  for (size_t i = 0; i < got.size(); ++i) right &= got[i] == 1 + (int)i / 30;
  CHECK(right);

  Buffer left(64 * 5);
  OK(launch("garbage", 5, 64, left.p));
  for (int value : ints(left)) CHECK(value == -1);

  // Each thread runs once: in order, or in another order if `PRETEND_GPU_SHUFFLE` is set.
  Buffer next(1), seen(1000);
  OK(cuMemsetD8Async(next.p, 0, 4, stream));
  OK(launch("order", 10, 100, next.p, seen.p));
  auto order = ints(seen);
  CHECK(std::is_sorted(order.begin(), order.end()) == !getenv("PRETEND_GPU_SHUFFLE"));
  std::sort(order.begin(), order.end());
  for (int i = 0; i < 1000; ++i) CHECK(order[i] == i);
}

void test_refusals() {
  Buffer buffer(100);
  void* pointers[] = {&buffer.p, &buffer.p};
  void* f = kernel("order");
  auto start = [&](unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty, unsigned tz) {
    return cuLaunchKernel(f, bx, by, bz, tx, ty, tz, 0, stream, pointers, nullptr);
  };
  EXPECT(1, start(0, 1, 1, 1, 1, 1));
  EXPECT(1, start(1, 65536, 1, 1, 1, 1));
  EXPECT(1, start(1, 1, 65536, 1, 1, 1));
  EXPECT(1, start(1, 1, 1, 0, 1, 1));
  EXPECT(1, start(1, 1, 1, 1025, 1, 1));
  EXPECT(1, start(1, 1, 1, 32, 33, 1));
  EXPECT(1, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 64 << 10, stream, pointers, nullptr));
  EXPECT(400, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, &failures, pointers, nullptr));
  EXPECT(400, cuLaunchKernel(&failures, 1, 1, 1, 1, 1, 1, 0, stream, pointers, nullptr));

  float values[101] = {};
  EXPECT(1, cuMemcpyHtoD_v2(buffer.p, values, 404));
  EXPECT(1, cuMemcpyHtoDAsync_v2(buffer.p + 4, values, 400, stream));
  EXPECT(1, cuMemcpyDtoH_v2(values, buffer.p - 4, 4));
  EXPECT(1, cuMemcpyDtoDAsync_v2(buffer.p, buffer.p + 40, 44, stream));
  OK(cuMemcpyDtoDAsync_v2(buffer.p, buffer.p + 40, 40, stream));
  EXPECT(1, cuMemsetD8Async(buffer.p, 0, 401, stream));
  EXPECT(1, cuMemsetD32Async(buffer.p + 1, 0, 1, stream));

  Ptr p, q;
  OK(cuMemAlloc_v2(&p, 1000));
  CHECK(p % 256 == 0);
  EXPECT(1, cuMemFree_v2(p + 256));
  unsigned fresh[250];
  OK(cuMemcpyDtoH_v2(fresh, p, 1000));
  for (unsigned word : fresh) CHECK(word == 0xffffffffu);
  OK(cuMemFree_v2(p));
  EXPECT(1, cuMemFree_v2(p));
  EXPECT(1, cuMemcpyDtoH_v2(fresh, p, 4));
  EXPECT(1, cuMemAlloc_v2(&p, 0));
  size_t free, total, now;
  OK(cuMemGetInfo_v2(&free, &total));
  EXPECT(2, cuMemAlloc_v2(&p, total + 1));
  OK(cuMemAlloc_v2(&p, free));
  EXPECT(2, cuMemAlloc_v2(&q, 1));
  OK(cuMemGetInfo_v2(&now, &total));
  CHECK(now == 0);
  OK(cuMemFree_v2(p));

  void* event;
  OK(cuEventCreate(&event, 0));
  OK(cuEventDestroy_v2(event));
  EXPECT(400, cuEventDestroy_v2(event));
  EXPECT(400, cuEventRecord(event, stream));
  void* other;
  OK(cuStreamCreate(&other, 1));
  OK(cuStreamDestroy_v2(other));
  EXPECT(400, cuStreamSynchronize(other));
  std::thread([] {
    Ptr p;
    EXPECT(201, cuMemAlloc_v2(&p, 4));
    EXPECT(201, cuStreamSynchronize(stream));
  }).join();
}

void test_streams() {
  // Enough work that the host is surely ahead of it.
  size_t n = 1 << 22;
  Buffer x(n), y(n);
  auto busy = [&](void* on) {
    for (int i = 0; i < 5; ++i) OK(cuMemsetD32Async(x.p, 0x3f800000 + i, n, on));
  };
  float* pinned;
  OK(cuMemHostAlloc((void**)&pinned, 4096, 0));
  float pageable[2] = {1, 2};
  busy(stream);
  EXPECT(600, cuStreamQuery(stream));
  // Pageable memory is the caller's again at once, pinned memory only when the copy is done.
  OK(cuMemcpyHtoDAsync_v2(y.p, pageable, 8, stream));
  pageable[0] = 9;
  pinned[0] = 3;
  OK(cuMemcpyHtoDAsync_v2(y.p + 8, pinned, 4, stream));
  pinned[0] = 4;
  OK(cuMemcpyDtoHAsync_v2(pinned + 8, y.p, 12, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamQuery(stream));
  CHECK(pinned[8] == 1 && pinned[9] == 2 && pinned[10] == 4);
  EXPECT(1, cuMemcpyHtoDAsync_v2(y.p, pinned, 8192, stream));

  // Another stream waits only for what it is told to.
  void *other, *start, *end, *bare;
  OK(cuStreamCreate(&other, 1));
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventCreate(&bare, 2));
  float time = -1;
  EXPECT(400, cuEventElapsedTime(&time, start, end));
  OK(cuEventQuery(end));
  OK(cuEventRecord(start, stream));
  busy(stream);
  OK(cuEventRecord(end, stream));
  EXPECT(600, cuEventQuery(end));
  EXPECT(600, cuEventElapsedTime(&time, start, end));
  OK(cuStreamWaitEvent(other, end, 0));
  OK(cuMemcpyDtoDAsync_v2(y.p, x.p + 4 * (n - 1), 4, other));
  OK(cuMemcpyDtoHAsync_v2(pinned, y.p, 4, other));
  OK(cuStreamSynchronize(other));
  unsigned bits;
  memcpy(&bits, pinned, 4);
  CHECK(bits == 0x3f800004);
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime(&time, start, end));
  CHECK(time > 0.1f && time < 10000);
  OK(cuEventRecord(bare, stream));
  OK(cuEventSynchronize(bare));
  EXPECT(400, cuEventElapsedTime(&time, start, bare));

  // The null stream waits for streams that are not non-blocking.
  void* blocking;
  OK(cuStreamCreate(&blocking, 0));
  busy(blocking);
  OK(cuMemcpyDtoH_v2(pageable, x.p, 4));
  memcpy(&bits, pageable, 4);
  CHECK(bits == 0x3f800004);
  for (auto s : {other, blocking}) OK(cuStreamDestroy_v2(s));
  for (auto e : {start, end, bare}) OK(cuEventDestroy_v2(e));
  OK(cuMemFreeHost(pinned));
  EXPECT(1, cuMemFreeHost(pinned));
}

// Runs a function that ends the process in a separate process, and returns its output.
std::string last_words(const char* what) {
  int pipes[2];
  if (pipe(pipes) != 0) return "";
  pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    execl("/proc/self/exe", "selftest", what, nullptr);
    _exit(99);
  }
  close(pipes[1]);
  std::string words;
  char text[256];
  for (ssize_t length; (length = read(pipes[0], text, sizeof text)) > 0;) words.append(text, length);
  close(pipes[0]);
  int status;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  return words;
}

void crash(const std::string& how) {
  Buffer buffer(64);
  if (how == "past the end") launch("stray", 1, 1, buffer.p, 64ll);
  if (how == "before the start") launch("stray", 1, 1, buffer.p, -1024ll);
  if (how == "freed") {
    Ptr p;
    OK(cuMemAlloc_v2(&p, 4));
    OK(cuMemFree_v2(p));
    launch("stray", 1, 1, p, 0ll);
  }
  if (how == "misaligned") launch("misaligned", 1, 1, buffer.p);
  if (how == "early_return") launch("early_return", 1, 32);
  if (how == "split") launch("split", 1, 64);
  if (how == "two_barriers") launch("two_barriers", 1, 64);
  cuCtxSynchronize();
}

void test_crashes() {
  auto says = [](const char* how, const char* kernel, const char* why) {
    std::string words = last_words(how);
    bool right = words.find("kernel `" + std::string(kernel) + "`") != std::string::npos && words.find(why) != std::string::npos;
    if (!right) fprintf(stderr, "%s: %s\n", how, words.c_str());
    CHECK(right);
  };
  says("past the end", "stray", "touched memory");
  says("before the start", "stray", "touched memory");
  says("freed", "stray", "touched memory");
  says("misaligned", "misaligned", "misaligned");
  says("early_return", "early_return", "for ever");
  says("split", "split", "for ever");
  says("two_barriers", "two_barriers", "while others come to");
}

}  // namespace

int main(int count, char** arguments) {
  load_all();
  int devices = 0;
  EXPECT(3, cuDeviceGetCount(&devices));
  OK(cuInit(0));
  OK(cuDeviceGetCount(&devices));
  CHECK(devices == 1);
  void* context;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, 1));
  if (count > 1) {
    std::string log;
    OK(compile(kKernels, &log, &module, {"--gpu-architecture=sm_990"}));
    crash(arguments[1]);
    return 0;
  }
  auto last = std::chrono::steady_clock::now();
  auto section = [&](const char* name, void (*test)()) {
    test();
    auto now = std::chrono::steady_clock::now();
    if (getenv("SELFTEST_TIMES")) fprintf(stderr, "%s: %.2f s\n", name, std::chrono::duration<double>(now - last).count());
    last = now;
  };
  section("compiler", test_compiler);
  section("kernels", test_kernels);
  section("maths", test_maths);
  section("blocks", test_blocks);
  section("refusals", test_refusals);
  section("streams", test_streams);
  section("libraries", [] { test_libraries(stream); });
  section("crashes", test_crashes);
  OK(cuModuleUnload(module));
  OK(cuStreamDestroy_v2(stream));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  Ptr p;
  EXPECT(709, cuMemAlloc_v2(&p, 4));
  if (failures) fprintf(stderr, "%d checks failed\n", failures);
  return failures != 0;
}
