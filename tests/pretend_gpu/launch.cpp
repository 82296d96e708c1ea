// The driver's entry points for modules, functions and launches.

#include "launch.h"
#include "device_state.h"
#include "device_text.h"
#include "grid.h"
#include "shared_sizes.h"
#include "stream.h"
#include <fcntl.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr int kMaxThreads = 1024;
constexpr int kSharedOptIn = 227 << 10;

struct Function {
  std::shared_ptr<Module> module;
  const pretend_kernel* kernel;
  size_t shared;  // bytes of static shared variables
  std::atomic<int> dynamic_shared{kSharedPerBlock};  // most that a launch may ask for

  int max_threads() const { return kernel->max_threads ? kernel->max_threads : kMaxThreads; }
};

// Functions that were looked up in a module live as long as the module.
struct Loaded {
  std::shared_ptr<Module> module;
  std::map<std::string, size_t> shared;  // bytes of the static shared variables of its functions
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Function>> functions;
};

Handles<Loaded>& modules() {
  static auto& modules = *new Handles<Loaded>;
  return modules;
}
Handles<Function>& functions() {
  static auto& functions = *new Handles<Function>;
  return functions;
}

void unload(Loaded& loaded) {
  std::lock_guard lock(loaded.mutex);
  for (auto& [_, function] : loaded.functions) functions().remove(function.get());
}

// Number of bytes of an image, which is passed without a length; 0 if this library did not compile the image.
size_t image_size(const void* image) {
  auto header = static_cast<const ElfW(Ehdr)*>(image);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
  // The linker puts the table of sections last.
  return header->e_type == ET_DYN ? header->e_shoff + size_t{header->e_shentsize} * header->e_shnum : 0;
}

// The loader reads files, so the image is written to a file. The loader treats two files of one name as the same
// file, so each file has a unique name.
void* load(const void* image, size_t bytes) {
  const char* folder = getenv("TMPDIR");
  std::string path = std::string(folder ? folder : "/tmp") + "/pretend_gpu_module_XXXXXX";
  int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return nullptr;
  void* library = nullptr;
  if (write(file, image, bytes) == static_cast<ssize_t>(bytes)) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) explain("cuModuleLoadData", "%s", dlerror());
  }
  close(file);
  unlink(path.c_str());
  return library;
}

// Bytes of all shared variables of a library.
size_t shared_bytes(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return 0;
  std::pair<ElfW(Addr), size_t> found{map->l_addr, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& [address, bytes] = *static_cast<std::pair<ElfW(Addr), size_t>*>(data);
        if (info->dlpi_addr != address) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type == PT_TLS) bytes = info->dlpi_phdr[i].p_memsz;
        }
        return 1;
      },
      &found);
  return found.second;
}

#define FIND_FUNCTION(function, handle)         \
  auto function = functions().find(handle);     \
  if (!function) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no function %p", handle)

}  // namespace

void unload_all_modules() {
  for (auto& loaded : modules().all()) {
    unload(*loaded);
    modules().remove(loaded.get());
  }
}

API CUresult cuModuleLoadData(CUmodule* to, const void* image) {
  ENTER();
  if (!to || !image) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = image_size(image);
  if (!bytes) return REFUSE(CUDA_ERROR_INVALID_IMAGE, "the image is not one that the pretend NVRTC made");
  auto module = std::make_shared<Module>();
  module->library = load(image, bytes);
  if (!module->library) return CUDA_ERROR_INVALID_IMAGE;
  module->description = static_cast<const pretend_module*>(dlsym(module->library, "pretend_gpu_module"));
  if (!module->description) return REFUSE(CUDA_ERROR_INVALID_IMAGE, "the image describes no kernels");
  if (module->description->version != device_version()) {
    return REFUSE(CUDA_ERROR_NO_BINARY_FOR_GPU, "the image was compiled by another version of the pretend GPU");
  }
  if (module->description->architecture && module->description->architecture != 990) {
    return REFUSE(CUDA_ERROR_NO_BINARY_FOR_GPU, "the image is for sm_%u, the device is sm_990", module->description->architecture);
  }
  module->description->attach(&kernel_api);
  module->shared_bytes = shared_bytes(module->library);
  auto loaded = std::make_shared<Loaded>();
  loaded->module = std::move(module);
  loaded->shared = shared_sizes(static_cast<const char*>(image), bytes);
  *to = modules().add(std::move(loaded));
  return CUDA_SUCCESS;
}

API CUresult cuModuleUnload(CUmodule handle) {
  ENTER();
  auto loaded = modules().remove(handle);
  if (!loaded) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no module %p", handle);
  unload(*loaded);
  return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction* to, CUmodule handle, const char* name) {
  ENTER();
  if (!to || !name) return CUDA_ERROR_INVALID_VALUE;
  auto loaded = modules().find(handle);
  if (!loaded) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no module %p", handle);
  std::lock_guard lock(loaded->mutex);
  auto& function = loaded->functions[name];
  if (!function) {
    auto kernels = loaded->module->description->kernels;
    auto end = kernels + loaded->module->description->count;
    auto kernel = std::find_if(kernels, end, [&](auto& kernel) { return strcmp(kernel.name, name) == 0; });
    if (kernel == end) {
      loaded->functions.erase(name);
      return REFUSE(CUDA_ERROR_NOT_FOUND, "the module has no extern \"C\" kernel `%s`", name);
    }
    function = std::make_shared<Function>();
    function->module = loaded->module;
    function->kernel = kernel;
    // Bytes of the kernel itself, and of all functions that are not kernels, because it is unknown which of them the
    // kernel calls.
    function->shared = 0;
    for (auto& [owner, bytes] : loaded->shared) {
      bool other = std::any_of(kernels, end, [&](auto& k) { return owner == k.name && &k != kernel; });
      if (!other) function->shared += bytes;
    }
    functions().add(function);
  }
  *to = function.get();
  return CUDA_SUCCESS;
}

API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction handle) {
  ENTER();
  FIND_FUNCTION(function, handle);
  if (!value || attribute < 0 || attribute > 17) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case 0: *value = function->max_threads(); break;  // MAX_THREADS_PER_BLOCK
    case 1: *value = static_cast<int>(function->shared); break;  // SHARED_SIZE_BYTES
    case 4: *value = 32; break;                               // NUM_REGS
    case 5: case 6: *value = 990; break;                      // PTX_VERSION, BINARY_VERSION
    case 8: *value = function->dynamic_shared; break;         // MAX_DYNAMIC_SHARED_SIZE_BYTES
    case 9: *value = -1; break;                               // PREFERRED_SHARED_MEMORY_CARVEOUT
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  ENTER();
  FIND_FUNCTION(function, handle);
  auto kernel = function->kernel;
  if (!offset || index >= kernel->parameters) return CUDA_ERROR_INVALID_VALUE;
  size_t end = 0;
  for (size_t i = 0; i <= index; ++i) {
    size_t alignment = kernel->alignments[i];
    *offset = (end + alignment - 1) / alignment * alignment;
    end = *offset + kernel->sizes[i];
  }
  if (size) *size = kernel->sizes[index];
  return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
  ENTER();
  FIND_FUNCTION(function, handle);
  switch (attribute) {
    case 8:  // MAX_DYNAMIC_SHARED_SIZE_BYTES
      if (value < 0 || value > kSharedOptIn) return CUDA_ERROR_INVALID_VALUE;
      function->dynamic_shared = value;
      return CUDA_SUCCESS;
    case 9:  // PREFERRED_SHARED_MEMORY_CARVEOUT
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
  ENTER();
  FIND_FUNCTION(function, handle);
  if (!blocks || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  bool fits = threads <= function->max_threads() && shared <= static_cast<size_t>(function->dynamic_shared);
  *blocks = fits ? std::min(2048 / ((threads + 31) / 32 * 32), 32) : 0;
  return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction handle, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty,
                            unsigned tz, unsigned shared, CUstream stream_handle, void** parameters, void** extra) {
  ENTER();
  FIND_FUNCTION(function, handle);
  auto stream = stream_of(stream_handle);
  if (!stream) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no stream %p", stream_handle);
  auto kernel = function->kernel;
  if (!bx || !by || !bz || bx > 2147483647u || by > 65535 || bz > 65535) {
    return REFUSE(CUDA_ERROR_INVALID_VALUE, "`%s`: no grid is of (%u, %u, %u) blocks", kernel->name, bx, by, bz);
  }
  if (!tx || !ty || !tz || tx > 1024 || ty > 1024 || tz > 64 ||
      static_cast<uint64_t>(tx) * ty * tz > static_cast<unsigned>(function->max_threads())) {
    return REFUSE(CUDA_ERROR_INVALID_VALUE, "`%s`: no block is of (%u, %u, %u) threads; it has %d at most", kernel->name,
                  tx, ty, tz, function->max_threads());
  }
  if (shared > static_cast<unsigned>(function->dynamic_shared)) {
    return REFUSE(CUDA_ERROR_INVALID_VALUE, "`%s`: %u bytes of shared memory are too many", kernel->name, shared);
  }
  if (extra) return REFUSE(CUDA_ERROR_NOT_SUPPORTED, "`extra` is not supported");
  if (kernel->parameters && !parameters) return REFUSE(CUDA_ERROR_INVALID_VALUE, "`%s`: no parameters", kernel->name);

  static std::atomic<uint64_t> launches{0};
  auto launch = std::make_shared<Launch>();
  launch->module = function->module;
  launch->kernel = kernel;
  launch->blocks = {bx, by, bz};
  launch->threads = {tx, ty, tz};
  uint64_t seed = settings().shuffle;
  launch->seed = seed ? (seed * 1000003 + ++launches) * 0x9E3779B97F4A7C15u | 1 : 0;

  // The parameters are copied, because the caller may free them before the stream reaches the launch.
  size_t bytes = 0;
  std::vector<size_t> offsets;
  for (unsigned i = 0; i < kernel->parameters; ++i) {
    size_t alignment = kernel->alignments[i];
    bytes = (bytes + alignment - 1) / alignment * alignment;
    offsets.push_back(bytes);
    bytes += kernel->sizes[i];
  }
  launch->values = std::make_unique<char[]>(bytes + 1);
  for (unsigned i = 0; i < kernel->parameters; ++i) {
    if (!parameters[i]) return REFUSE(CUDA_ERROR_INVALID_VALUE, "`%s`: parameter %u is null", kernel->name, i);
    launch->parameters.push_back(launch->values.get() + offsets[i]);
    memcpy(launch->parameters[i], parameters[i], kernel->sizes[i]);
  }
  give(stream, "kernel `" + std::string(kernel->name) + "`", [launch] { run(*launch); });
  return CUDA_SUCCESS;
}
