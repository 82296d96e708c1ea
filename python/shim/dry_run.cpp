#include "dry_run.h"

#include "operands.h"
#include "record.h"
#include "sizes.h"
#include "storages.h"

#include <ATen/EmptyTensor.h>
#include <string_view>
#include <unordered_map>

namespace remat {
namespace {

std::map<std::string, uint64_t> guessed;

// Most bytes of whole numbers that are computed. They are ids, lengths and orders of examples.
constexpr size_t MOST_BYTES_OF_INTEGERS = 16 << 20;

// What is known of a call before it runs.
struct Facts {
  // Whether all operands have values.
  bool known = true;
  // Whether an operand has no data at all, such as a parameter made on the device `meta`.
  bool meta = false;
  // Whether the budget counts an operand.
  bool counted = false;
  // Device of the results.
  c10::Device device = c10::kCPU;
  // Operands that are written to.
  c10::SmallVector<at::Tensor, 4> written;
};

Facts facts_of(const Form& form, c10::ArrayRef<c10::IValue> arguments, c10::Device device) {
  Facts facts;
  bool has_device = form.device >= 0 && arguments[form.device].isDevice();
  if (has_device) facts.device = arguments[form.device].toDevice();
  for (size_t i = 0; i < arguments.size(); i++) {
    each_tensor(arguments[i], [&](const at::Tensor& tensor, int32_t) {
      if (!tensor.defined()) return;
      if (!has_device && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        facts.device = tensor.device();
        has_device = true;
      }
      if (form.writes[i] || form.beside[i]) facts.written.push_back(tensor);
      facts.meta |= tensor.is_meta();
      facts.counted |= is_counted(tensor, device);
      if (tensor.is_meta() || (tensor.has_storage() && !has_values(tensor.storage().unsafeGetStorageImpl()))) facts.known = false;
    });
  }
  return facts;
}

// Whether results and targets are so small that the kernel may run.
bool is_small(const Facts& facts, const WithoutData& without) {
  uint64_t bytes = 0, integers = 0;
  auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    bool whole = c10::isIntegralType(tensor.scalar_type(), true);
    (whole ? integers : bytes) += static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
  };
  for (const auto& value : without.results) each_tensor(value, [&](const at::Tensor& tensor, int32_t) { add(tensor); });
  for (const auto& tensor : facts.written) add(tensor);
  return bytes <= MOST_DRY_BYTES && integers <= MOST_BYTES_OF_INTEGERS;
}

void run_kernel(const Form& form, torch::jit::Stack* stack, const Facts& facts) {
  for (const auto& tensor : facts.written)
    if (tensor.has_storage()) back_up(tensor.storage().unsafeGetStorageImpl());
  call_kernel(form.op, stack);
}

at::Tensor on(const c10::intrusive_ptr<c10::StorageImpl>& storage, const at::Tensor& like, int64_t offset) {
  Look look{};
  look.dtype = like.scalar_type();
  look.conj = like.is_conj();
  look.neg = like.is_neg();
  look.offset = offset;
  look.sizes.assign(like.sizes().begin(), like.sizes().end());
  look.strides.assign(like.strides().begin(), like.strides().end());
  return look.at(storage);
}

c10::intrusive_ptr<c10::StorageImpl> storage_without_values(uint64_t bytes, c10::Device device) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, c10::DataPtr(nullptr, device),
                                               c10::GetAllocator(device.type()), true);
}

// Whether an operand is of whole numbers that are known, such as lengths.
bool is_known_integer(const at::Tensor& tensor) {
  return tensor.has_storage() && !tensor.is_meta() && c10::isIntegralType(tensor.scalar_type(), false) &&
         has_values(tensor.storage().unsafeGetStorageImpl());
}

// Tensors of the device in place of results without data.
struct Results {
  const WithoutData& without;
  const Facts& facts;
  std::unordered_map<c10::StorageImpl*, c10::intrusive_ptr<c10::StorageImpl>> made = {};

  at::Tensor tensor(const at::Tensor& result) {
    if (!result.defined() || !result.is_meta()) return result;
    TORCH_CHECK(result.layout() == c10::kStrided, "a result is not strided, and has no size that a dry run knows");
    auto* storage = result.storage().unsafeGetStorageImpl();
    for (const auto& [operand, real] : without.operands) {
      if (operand.is_same(result)) return real;
      if (operand.storage().unsafeGetStorageImpl() == storage)
        return on(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(real.storage().unsafeGetStorageImpl()), result, real.storage_offset() + result.storage_offset());
    }
    auto& own = made[storage];
    if (!own) own = storage_without_values(storage->nbytes(), facts.device);
    return on(own, result, result.storage_offset());
  }

  c10::IValue value(const c10::IValue& result) {
    if (result.isTensor()) return tensor(result.toTensor());
    if (!result.isTensorList()) return result;
    std::vector<at::Tensor> list;
    for (const at::Tensor& item : result.toTensorVector()) list.push_back(tensor(item));
    return list;
  }
};

// Numbers in place of those that an op would have read from its operands.
void push_numbers(const Form& form, torch::jit::Stack* stack, c10::ScalarType type) {
  for (const auto& result : form.op.schema().returns()) {
    auto kind = result.type()->kind();
    if (kind == c10::TypeKind::BoolType || (kind == c10::TypeKind::NumberType && type == c10::kBool)) {
      stack->emplace_back(false);
    } else if (kind == c10::TypeKind::IntType || (kind == c10::TypeKind::NumberType && c10::isIntegralType(type, false))) {
      stack->emplace_back(int64_t{1});
    } else {
      TORCH_CHECK(kind == c10::TypeKind::FloatType || kind == c10::TypeKind::NumberType, form.name,
                  " reads values, of which remat.suggest has none");
      stack->emplace_back(1.0);
    }
  }
}

// Results of an op whose sizes depend on values, of the largest sizes.
std::vector<at::Tensor> largest(const Form& form, c10::ArrayRef<c10::IValue> arguments, const Facts& facts) {
  std::string_view name = form.op.schema().name();
  auto make = [&](c10::IntArrayRef sizes, c10::ScalarType type) {
    at::Tensor like = at::detail::empty_meta(sizes, type);
    return on(storage_without_values(like.storage().nbytes(), facts.device), like, 0);
  };
  if (!arguments.empty() && arguments[0].isTensor() && arguments[0].toTensor().defined()) {
    auto first = arguments[0].toTensor();
    auto elements = first.numel();
    if (name == "aten::nonzero" || name == "aten::argwhere") return {make({elements, first.dim()}, c10::kLong)};
    if (name == "aten::masked_select" && arguments[1].isTensor())
      return {make({std::max(elements, arguments[1].toTensor().numel())}, first.scalar_type())};
    if (name == "aten::_unique2" || name == "aten::unique_consecutive")
      return {make({elements}, first.scalar_type()), make(first.sizes(), c10::kLong), make({elements}, c10::kLong)};
    if (name == "aten::index") {
      // Masks as the indices of all of their elements.
      c10::List<std::optional<at::Tensor>> indices;
      for (const c10::IValue& item : arguments[1].toListRef()) {
        if (!item.isTensor() || !item.toTensor().defined()) {
          indices.push_back(std::nullopt);
          continue;
        }
        auto index = item.toTensor();
        if (is_mask(index)) {
          for (int64_t i = 0; i < index.dim(); i++) indices.push_back(at::Tensor(at::detail::empty_meta({index.numel()}, c10::kLong)));
        } else {
          indices.push_back(index);
        }
      }
      auto without = without_data(form, {c10::IValue(first), c10::IValue(indices)});
      Results results{without, facts};
      return {results.tensor(without.results[0].toTensor())};
    }
  }
  TORCH_CHECK(false, form.name, " makes results whose sizes depend on values, of which remat.suggest has none");
}

// Whether an op writes to an operand only if something is wrong with the values.
bool keeps(const Form& form, const at::Tensor& tensor) {
  return form.op.schema().name() == "aten::_amp_foreach_non_finite_check_and_unscale_" && tensor.numel() == 1;
}

}  // namespace

const std::map<std::string, uint64_t>& guesses() { return guessed; }
void forget_guesses() { guessed.clear(); }

void call_without_values(const Form& form, torch::jit::Stack* stack, c10::Device device) {
  auto given = torch::jit::last(*stack, form.arguments);
  std::vector<c10::IValue> arguments(given.begin(), given.end());
  auto facts = facts_of(form, arguments, device);
  // Work on the host, such as that of a loader of data.
  bool elsewhere = !facts.counted && facts.device != device && !facts.meta;
  if (elsewhere || (facts.known && form.dynamic)) return run_kernel(form, stack, facts);
  auto skip_writes = [&] {
    for (const auto& tensor : facts.written)
      if (tensor.has_storage() && !keeps(form, tensor)) make_stale(tensor.storage().unsafeGetStorageImpl());
  };
  if (!form.makes_tensors && form.results > 0) {
    if (facts.known) return run_kernel(form, stack, facts);
    guessed[form.name]++;
    auto type = arguments[0].isTensor() ? arguments[0].toTensor().scalar_type() : c10::kFloat;
    torch::jit::drop(*stack, form.arguments);
    return push_numbers(form, stack, type);
  }
  if (form.dynamic && !has_known_index(form, arguments)) {
    guessed[form.name]++;
    auto results = largest(form, arguments, facts);
    torch::jit::drop(*stack, form.arguments);
    for (auto& result : results) stack->emplace_back(std::move(result));
    return;
  }
  WithoutData without;
  try {
    without = without_data(form, arguments);
  } catch (const c10::NotImplementedError&) {
    if (facts.known) return run_kernel(form, stack, facts);
    TORCH_CHECK(form.makes_nothing, form.name,
                " has no kernel for tensors without data, so remat.suggest does not know the sizes of its results; "
                "register one with torch.library.register_fake");
    // Its results are the operands that it writes to.
    skip_writes();
    torch::jit::drop(*stack, form.arguments);
    for (const auto& result : form.op.schema().returns())
      for (size_t i = 0; i < arguments.size(); i++) {
        const auto* written = form.op.schema().arguments()[i].alias_info();
        if (form.writes[i] && result.alias_info() && written->beforeSets() == result.alias_info()->beforeSets()) {
          stack->push_back(arguments[i]);
          break;
        }
      }
    return;
  } catch (const c10::Error&) {
    // Some kernels read lengths.
    auto first = std::current_exception();
    try {
      without = without_data(form, arguments, is_known_integer);
    } catch (const std::exception&) {
      std::rethrow_exception(first);
    }
  }
  if (facts.known && is_small(facts, without)) return run_kernel(form, stack, facts);
  for (const auto& [operand, real] : without.operands)
    TORCH_CHECK(operand.sizes() == real.sizes(), form.name, " changes the size of an operand, which remat.suggest cannot follow");
  skip_writes();
  Results results{without, facts};
  torch::jit::drop(*stack, form.arguments);
  for (const auto& result : without.results) stack->push_back(results.value(result));
}

}  // namespace remat
