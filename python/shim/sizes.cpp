#include "sizes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>
#include <string_view>
#include <unordered_map>

namespace remat {
namespace {

std::unordered_map<uint64_t, std::shared_ptr<const Sizes>> known;

// Most answers that are kept. A program whose shapes never repeat needs no old ones.
constexpr size_t MOST_KNOWN = 1 << 16;

// Work for each byte read or written, beside the cost of moving it, which the engine's cost model adds.
constexpr double WORK_PER_BYTE = 0.25;

at::Tensor without_data(const at::Tensor& tensor) {
  if (is_constant(tensor)) return tensor;
  auto made = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  auto* impl = made.unsafeGetTensorImpl();
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  return made;
}

double numel(const at::Tensor& tensor) { return tensor.defined() ? static_cast<double>(tensor.numel()) : 0; }

double last_size(const at::Tensor& tensor) { return tensor.dim() ? static_cast<double>(tensor.size(-1)) : 1; }

// Floating-point operations of products, of which there are few operators; 0 for all other ops.
double products(const Form& form, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results) {
  std::string_view name = form.op.schema().name();
  auto argument = [&](size_t i) { return arguments[i].isTensor() ? arguments[i].toTensor() : at::Tensor(); };
  auto result = [&](size_t i) {
    return i < results.size() && results[i].isTensor() ? results[i].toTensor() : at::Tensor();
  };
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv" || name == "aten::dot")
    return 2 * numel(result(0)) * last_size(argument(0));
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv")
    return 2 * numel(result(0)) * last_size(argument(1));
  auto per_output = [&](const at::Tensor& weight) {
    return weight.defined() && weight.dim() > 1 ? 2 * numel(weight) / static_cast<double>(weight.size(0)) : 0;
  };
  if (name == "aten::convolution" || name == "aten::_convolution" || name == "aten::mkldnn_convolution")
    return numel(result(0)) * per_output(argument(1));
  if (name == "aten::convolution_backward") {
    double each = numel(argument(0)) * per_output(argument(2));
    return each * (result(0).defined() + result(1).defined());
  }
  if (name.find("scaled_dot_product") != std::string_view::npos) {
    bool backward = name.find("backward") != std::string_view::npos;
    auto query = argument(backward ? 1 : 0), key = argument(backward ? 2 : 1);
    if (!query.defined() || !key.defined() || query.dim() < 2 || key.dim() < 2) return 0;
    return (backward ? 10 : 4) * numel(query) * static_cast<double>(key.size(-2));
  }
  return 0;
}

std::shared_ptr<const Sizes> infer(const Form& form, const torch::jit::Stack& stack, c10::Device device) {
  auto sizes = std::make_shared<Sizes>();
  try {
    auto arguments = torch::jit::last(stack, form.arguments);
    auto without = without_data(form, arguments);
    for (const auto& value : without.arguments)
      each_tensor(value, [&](const at::Tensor& tensor, int32_t) {
        if (!tensor.defined()) return;
        // A view that is expanded has fewer bytes than its elements would take.
        auto most = tensor.has_storage() ? tensor.storage().nbytes() : SIZE_MAX;
        sizes->moved += std::min(static_cast<size_t>(tensor.numel()) * tensor.element_size(), most);
      });
    c10::SmallVector<c10::StorageImpl*, 8> given;
    for (const auto& [tensor, _] : without.operands) given.push_back(tensor.storage().unsafeGetStorageImpl());
    bool strided = true;
    each_new_storage(without.results, given, [&](const at::Tensor& tensor, c10::StorageImpl* storage) {
      strided &= tensor.layout() == c10::kStrided && tensor.is_meta();
      sizes->bytes.push_back(storage->nbytes());
      sizes->moved += storage->nbytes();
    });
    if (!strided) return nullptr;
    // A copy to another device takes no memory of this one.
    if (form.device >= 0 && arguments[form.device].isDevice() && !is_dry() &&
        arguments[form.device].toDevice().type() != device.type())
      sizes->bytes.clear();
    auto moving = static_cast<double>(sizes->moved) * WORK_PER_BYTE;
    sizes->work = std::max(products(form, without.arguments, without.results), moving);
  } catch (const std::exception&) {
    // No kernel for tensors without data, or the arguments are wrong: then the op says so when it runs.
    return nullptr;
  }
  return sizes;
}

// Bytes of the workspace of oneDNN's recurrent layer for a sequence of this length, from a run on zeros.
double workspace(const Form& form, c10::ArrayRef<c10::IValue> arguments, int64_t length) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); i++) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) {
      stack.push_back(arguments[i]);
      continue;
    }
    const auto tensor = arguments[i].toTensor();
    auto sizes = tensor.sizes().vec();
    if (i == 0) sizes[0] = length;
    stack.emplace_back(at::zeros(sizes, tensor.scalar_type()));
  }
  form.op.callBoxed(&stack);
  return static_cast<double>(stack[3].toTensor().nbytes());
}

// Puts the size of the workspace in place, which the kernel for tensors without data does not know. The workspace grows
// evenly with the length of the sequence, so two short runs tell its size.
void size_workspace(const Form& form, c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) {
  constexpr int64_t SHORT = 4, LONG = 36;
  auto length = arguments[0].toTensor().size(0);
  double bytes = workspace(form, arguments, std::min(length, LONG));
  if (length > LONG) {
    auto slope = (bytes - workspace(form, arguments, SHORT)) / (LONG - SHORT);
    bytes += static_cast<double>(length - LONG) * slope;
  }
  results[3] = at::Tensor(at::detail::empty_meta({static_cast<int64_t>(bytes)}, c10::kByte));
}

}  // namespace

WithoutData without_data(const Form& form, c10::ArrayRef<c10::IValue> given, bool (*stays)(const at::Tensor&)) {
  WithoutData without;
  auto take = [&](const at::Tensor& tensor) {
    if (stays && tensor.defined() && stays(tensor)) return tensor;
    auto made = without_data(tensor);
    if (made.defined() && made.is_meta()) without.operands.emplace_back(made, tensor);
    return made;
  };
  auto& arguments = without.arguments;
  for (const auto& value : given) {
    if (value.isTensor()) {
      arguments.emplace_back(take(value.toTensor()));
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const auto& item : value.toListRef()) list.push_back(take(item.toTensor()));
      arguments.emplace_back(std::move(list));
    } else if (may_hold_tensors(value)) {
      auto list = c10::impl::GenericList(value.toList().elementType());
      for (const c10::IValue& item : value.toListRef()) list.push_back(item.isTensor() ? c10::IValue(take(item.toTensor())) : item);
      arguments.emplace_back(std::move(list));
    } else {
      arguments.push_back(value);
    }
  }
  if (form.device >= 0 && (without.operands.empty() || !arguments[form.device].isNone())) arguments[form.device] = c10::Device(c10::kMeta);
  if (form.pinned >= 0) arguments[form.pinned] = c10::IValue();
  if (form.generator >= 0) arguments[form.generator] = c10::IValue();
  without.results = arguments;
  form.op.callBoxed(&without.results);
  if (form.op.schema().name() == "aten::mkldnn_rnn_layer") size_workspace(form, given, without.results);
  return without;
}

bool has_known_index(const Form& form, c10::ArrayRef<c10::IValue> arguments) {
  if (form.op.schema().name() != "aten::index") return false;
  bool is_known = true;
  each_tensor(arguments[1], [&](const at::Tensor& index, int32_t) {
    if (index.defined()) is_known &= !is_mask(index);
  });
  return is_known;
}

std::shared_ptr<const Sizes> sizes_of(const Form& form, const Operands& operands, const torch::jit::Stack& stack,
                                      c10::Device device) {
  if (form.dynamic && !has_known_index(form, torch::jit::last(stack, form.arguments))) return nullptr;
  if (auto at = known.find(operands.key); at != known.end()) return at->second;
  auto sizes = infer(form, stack, device);
  if (known.size() >= MOST_KNOWN) known.clear();
  known[operands.key] = sizes;
  return sizes;
}

void correct(uint64_t key, std::vector<uint64_t> bytes) {
  auto sizes = std::make_shared<Sizes>();
  if (auto at = known.find(key); at != known.end() && at->second) *sizes = *at->second;
  sizes->bytes = std::move(bytes);
  known[key] = sizes;
}

std::optional<uint64_t> bound_of(const Form& form, const torch::jit::Stack& stack) {
  std::string_view name = form.op.schema().name();
  auto arguments = torch::jit::last(stack, form.arguments);
  if (arguments.empty() || !arguments[0].isTensor()) return {};
  auto first = arguments[0].toTensor();
  if (!first.defined() || first.layout() != c10::kStrided) return {};
  auto elements = static_cast<uint64_t>(first.numel());
  auto bytes = elements * first.element_size();
  constexpr uint64_t index = sizeof(int64_t);
  if (name == "aten::nonzero" || name == "aten::argwhere") return elements * std::max<int64_t>(1, first.dim()) * index;
  if (name == "aten::index") {
    uint64_t masks = 0;
    each_tensor(arguments[1], [&](const at::Tensor& mask, int32_t) {
      if (mask.defined()) masks += static_cast<uint64_t>(mask.numel()) * std::max<int64_t>(1, mask.dim()) * index;
    });
    return bytes + masks;
  }
  if (name == "aten::masked_select") {
    auto mask = arguments.size() > 1 && arguments[1].isTensor() ? arguments[1].toTensor() : at::Tensor();
    if (!mask.defined()) return {};
    return std::max<uint64_t>(elements, mask.numel()) * first.element_size() * 2;
  }
  if (name == "aten::_unique2" || name == "aten::_unique" || name == "aten::unique_dim" || name == "aten::unique_consecutive")
    return bytes + 2 * elements * index;
  return {};
}

}  // namespace remat
