#include "form.h"

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace remat {
namespace {

struct Statistics {
  std::string_view name;
  size_t mean, variance;
  int trains;
};

// Operators of batch norm whose schema does not say that they write to the running statistics, or that write to
// them without an effect on the results.
constexpr Statistics BATCH_NORMS[] = {
    {"aten::native_batch_norm", 3, 4, 5},
    {"aten::_native_batch_norm_legit", 3, 4, 5},
    {"aten::cudnn_batch_norm", 3, 4, 5},
    {"aten::miopen_batch_norm", 3, 4, 5},
    {"aten::_batch_norm_with_update", 3, 4, Form::ALWAYS},
    {"aten::batch_norm_update_stats", 1, 2, Form::ALWAYS},
    {"aten::batch_norm_gather_stats", 3, 4, Form::ALWAYS},
    {"aten::batch_norm_gather_stats_with_counts", 3, 4, Form::ALWAYS},
};

// Operators that change the size or the storage of an operand.
constexpr std::string_view OPAQUE[] = {"aten::resize_", "aten::resize_as_", "aten::set_", "aten::_resize_output_",
                                       "aten::set_data", "aten::record_stream", "aten::_foreach_set_"};

// Operators that make memory without writing to it.
constexpr std::string_view BLANK[] = {"aten::empty",     "aten::empty_strided",     "aten::empty_like",
                                      "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted"};

// Operators that write to their first operand without reading its old value.
constexpr std::string_view OVERWRITE[] = {
    "aten::bernoulli_", "aten::cauchy_",     "aten::exponential_", "aten::fill_",    "aten::geometric_", "aten::log_normal_",
    "aten::normal_",    "aten::random_",     "aten::uniform_",     "aten::zero_",    "aten::copy_"};

// Namespaces of operators that exchange data with other processes.
constexpr std::string_view COLLECTIVE[] = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem", "_dtensor"};

// Operators with a kernel for GPUs that adds in no fixed order, unless PyTorch is told to be deterministic: the list in
// the documentation of `torch.use_deterministic_algorithms`, and attention.
constexpr std::string_view UNORDERED[] = {
    "aten::_adaptive_avg_pool2d_backward",
    "aten::_adaptive_avg_pool3d_backward",
    "aten::_cdist_backward",
    "aten::_ctc_loss_backward",
    "aten::_embedding_bag_dense_backward",
    "aten::_index_put_impl_",
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_efficient_attention_backward",
    "aten::_flash_attention_backward",
    "aten::_upsample_bicubic2d_aa_backward",
    "aten::_upsample_bilinear2d_aa_backward",
    "aten::adaptive_max_pool2d_backward",
    "aten::avg_pool3d_backward",
    "aten::bincount",
    "aten::convolution_backward",
    "aten::cudnn_convolution_transpose",
    "aten::cumprod",
    "aten::cumsum",
    "aten::embedding_dense_backward",
    "aten::fractional_max_pool2d_backward",
    "aten::fractional_max_pool3d_backward",
    "aten::grid_sampler_2d_backward",
    "aten::grid_sampler_3d_backward",
    "aten::histc",
    "aten::index_add",
    "aten::index_copy",
    "aten::index_put",
    "aten::index_reduce",
    "aten::index_select_backward",
    "aten::kthvalue",
    "aten::logcumsumexp",
    "aten::max_pool3d_with_indices_backward",
    "aten::max_unpool2d",
    "aten::max_unpool3d",
    "aten::median",
    "aten::nanmedian",
    "aten::nll_loss2d_forward",
    "aten::put",
    "aten::reflection_pad1d_backward",
    "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward",
    "aten::replication_pad1d_backward",
    "aten::replication_pad2d_backward",
    "aten::replication_pad3d_backward",
    "aten::scatter",
    "aten::scatter_add",
    "aten::scatter_reduce",
    "aten::segment_reduce",
    "aten::upsample_bicubic2d_backward",
    "aten::upsample_bilinear2d_backward",
    "aten::upsample_linear1d_backward",
    "aten::upsample_nearest1d_backward",
    "aten::upsample_nearest2d_backward",
    "aten::upsample_nearest3d_backward",
    "aten::upsample_trilinear3d_backward",
};

// Operators whose results share the storage of an operand, although their schema does not say so.
constexpr std::string_view VIEWS[] = {"aten::_unsafe_view", "aten::_nested_view_from_buffer"};

template <size_t N>
bool is_in(const std::string_view (&names)[N], std::string_view name) {
  for (auto other : names)
    if (other == name) return true;
  return false;
}

bool has_tensor(const c10::Argument& argument) {
  return argument.type()->str().find("Tensor") != std::string::npos;
}

// Guards `forms` and `gone`. The three are never destroyed, because records outlive the last call.
auto& guard = *new std::mutex;
auto& forms = *new std::unordered_map<c10::OperatorHandle, std::unique_ptr<Form>>;
// Forms of operators that are gone. Records still refer to them.
auto& gone = *new std::vector<std::unique_ptr<Form>>;
// Number of operators that are gone.
std::atomic<uint64_t> departures = 0;

// A later operator may get the handle of one that is gone.
struct Farewell final : c10::OpRegistrationListener {
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    std::lock_guard lock(guard);
    auto node = forms.extract(op);
    if (node.empty()) return;
    node.mapped()->is_gone = true;
    gone.push_back(std::move(node.mapped()));
    departures++;
  }
};

}  // namespace

Form::Form(const c10::OperatorHandle& handle) : op(handle) {
  const auto& schema = op.schema();
  name = schema.name();
  std::string_view plain = schema.name();
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  arguments = schema.arguments().size();
  results = schema.returns().size();

  once = plain == "aten::_cudnn_init_dropout_state";
  collective = is_in(COLLECTIVE, plain.substr(0, plain.find(':')));
  bool reads_tensors = false, any_writes = false;
  for (size_t i = 0; i < arguments; i++) {
    const auto& argument = schema.arguments()[i];
    reads_tensors |= has_tensor(argument);
    bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
    writes.push_back(is_written || (collective && has_tensor(argument)));
    once |= argument.type()->str().find("__torch__.torch.classes") != std::string::npos;
    beside.push_back(false);
    any_writes |= is_written;
    if (argument.name() == "generator") generator = static_cast<int>(i);
    if (argument.name() == "device") device = static_cast<int>(i);
    if (argument.name() == "pin_memory") pinned = static_cast<int>(i);
    if (argument.name() == "dropout") dropout = static_cast<int>(i);
    if (argument.name() == "train") drops_in_training = static_cast<int>(i);
    if (argument.name() == "dropout_state") dropout_state = static_cast<int>(i);
    if (plain == "aten::record_stream" && argument.name() == "s") stream = static_cast<int>(i);
  }
  bool all_alias = results > 0, all_written = results > 0 && any_writes;
  for (const auto& result : schema.returns()) {
    makes_tensors |= has_tensor(result);
    all_alias &= result.alias_info() != nullptr;
    all_written &= result.alias_info() && result.alias_info()->isWrite();
  }
  makes_nothing = !makes_tensors || (any_writes && all_written);
  bool views = !any_writes && (all_alias || is_in(VIEWS, plain));
  passes = views || (!reads_tensors && !makes_tensors);
  opaque = is_in(OPAQUE, plain);
  blank = is_in(BLANK, plain) && !any_writes;
  overwrites = is_in(OVERWRITE, plain) && writes[0];
  // In place or not, an op has one kernel.
  unordered = is_in(UNORDERED, plain) || (plain.ends_with('_') && is_in(UNORDERED, plain.substr(0, plain.size() - 1)));
  random = op.hasTag(at::Tag::nondeterministic_seeded);
  pointwise = op.hasTag(at::Tag::pointwise);
  dynamic = op.hasTag(at::Tag::dynamic_output_shape);
  decomposes = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
               !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && !op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  for (const auto& norm : BATCH_NORMS) {
    if (norm.name != plain || arguments <= norm.variance || schema.overload_name() == "no_stats") continue;
    if (norm.trains >= static_cast<int>(arguments)) continue;
    trains = norm.trains;
    beside[norm.mean] = beside[norm.variance] = true;
  }
}

Form& form_of(const c10::OperatorHandle& op) {
  [[maybe_unused]] static auto& farewell =
      *new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Farewell>()));
  // Most calls find the form of their operator here, without the lock.
  thread_local std::unordered_map<c10::OperatorHandle, Form*> own;
  thread_local uint64_t of = 0;
  if (of != departures) {
    of = departures;
    own.clear();
  }
  if (auto at = own.find(op); at != own.end()) return *at->second;
  std::lock_guard lock(guard);
  auto& form = forms[op];
  if (!form) form = std::make_unique<Form>(op);
  own[op] = form.get();
  return *form;
}

}  // namespace remat
