#include "interpreter.h"

#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/torch_dispatch_mode.h>

namespace remat {
namespace {

// All functions but `dispatch` and `detach` are PyTorch's.
struct Interpreter final : c10::impl::PyInterpreterVTable {
  const c10::impl::PyInterpreterVTable& inner;
  const Governor governor;

  Interpreter(const c10::impl::PyInterpreterVTable& inner, Governor governor) : inner(inner), governor(governor) {}

  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    if (governor.governs()) return governor.dispatch(op, stack, inner);
    inner.dispatch(op, stack);
  }

  std::string name() const override { return inner.name(); }
  void incref(PyObject* object) const override { inner.incref(object); }
  void decref(PyObject* object) const override { inner.decref(object); }
  bool try_incref(const c10::impl::PyObjectSlot& slot) const override { return inner.try_incref(slot); }
  size_t refcnt(PyObject* object) const override { return inner.refcnt(object); }
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl* self) const override {
    if (!governor.governs() || self->key_set().has(c10::DispatchKey::Python)) return inner.detach(self);
    // A view: it reads no bytes.
    torch::torch_dispatch_mode::StashTorchDispatchModeGuard stash;
    return self->shallow_copy_and_detach(c10::VariableVersion(0), false);
  }
  void reportErrorCallback(PyObject* callback, c10::DispatchKey key) const override {
    inner.reportErrorCallback(callback, key);
  }
  void python_op_registration_trampoline(const c10::OperatorHandle& op, c10::DispatchKey key, c10::DispatchKeySet keys,
                                         torch::jit::Stack* stack, bool with_keyset, bool with_op) const override {
    inner.python_op_registration_trampoline(op, key, keys, stack, with_keyset, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string name, const char* module, const char* context) const override {
    inner.throw_abstract_impl_not_imported_error(std::move(name), module, context);
  }
  void python_dispatcher(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) const override {
    inner.python_dispatcher(op, keys, stack);
  }
  bool is_contiguous(const c10::TensorImpl* self, at::MemoryFormat format) const override {
    return inner.is_contiguous(self, format);
  }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl* self, at::MemoryFormat format) const override {
    return inner.sym_is_contiguous(self, format);
  }
  bool is_strides_like(const c10::TensorImpl* self, at::MemoryFormat format) const override {
    return inner.is_strides_like(self, format);
  }
  bool is_non_overlapping_and_dense(const c10::TensorImpl* self) const override {
    return inner.is_non_overlapping_and_dense(self);
  }
  c10::Device device(const c10::TensorImpl* self) const override { return inner.device(self); }
  int64_t dim(const c10::TensorImpl* self) const override { return inner.dim(self); }
  c10::IntArrayRef strides(const c10::TensorImpl* self) const override { return inner.strides(self); }
  c10::IntArrayRef sizes(const c10::TensorImpl* self) const override { return inner.sizes(self); }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl* self) const override { return inner.sym_sizes(self); }
  c10::Layout layout(const c10::TensorImpl* self) const override { return inner.layout(self); }
  int64_t numel(const c10::TensorImpl* self) const override { return inner.numel(self); }
  c10::SymInt sym_numel(const c10::TensorImpl* self) const override { return inner.sym_numel(self); }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl* self) const override { return inner.sym_strides(self); }
  c10::SymInt sym_storage_offset(const c10::TensorImpl* self) const override { return inner.sym_storage_offset(self); }
  void trace_gpu_event_creation(c10::DeviceType type, uintptr_t event) const override {
    inner.trace_gpu_event_creation(type, event);
  }
  void trace_gpu_event_deletion(c10::DeviceType type, uintptr_t event) const override {
    inner.trace_gpu_event_deletion(type, event);
  }
  void trace_gpu_event_record(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    inner.trace_gpu_event_record(type, event, stream);
  }
  void trace_gpu_event_wait(c10::DeviceType type, uintptr_t event, uintptr_t stream) const override {
    inner.trace_gpu_event_wait(type, event, stream);
  }
  void trace_gpu_memory_allocation(c10::DeviceType type, uintptr_t ptr) const override {
    inner.trace_gpu_memory_allocation(type, ptr);
  }
  void trace_gpu_memory_deallocation(c10::DeviceType type, uintptr_t ptr) const override {
    inner.trace_gpu_memory_deallocation(type, ptr);
  }
  void trace_gpu_stream_creation(c10::DeviceType type, uintptr_t stream) const override {
    inner.trace_gpu_stream_creation(type, stream);
  }
  void trace_gpu_device_synchronization(c10::DeviceType type) const override {
    inner.trace_gpu_device_synchronization(type);
  }
  void trace_gpu_stream_synchronization(c10::DeviceType type, uintptr_t stream) const override {
    inner.trace_gpu_stream_synchronization(type, stream);
  }
  void trace_gpu_event_synchronization(c10::DeviceType type, uintptr_t event) const override {
    inner.trace_gpu_event_synchronization(type, event);
  }
  void reset_backward_hooks(const c10::TensorImpl* self) const override { inner.reset_backward_hooks(self); }
};

}  // namespace

void replace_interpreter(Governor governor) {
  auto* interpreter = getPyInterpreter();
  interpreter->vtable_ = new Interpreter(*interpreter->vtable_, governor);
}

}  // namespace remat
