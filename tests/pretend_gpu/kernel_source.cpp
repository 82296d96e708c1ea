#include "kernel_source.h"
#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>

namespace {

bool starts_with(const std::string& text, const char* start) { return text.compare(0, strlen(start), start) == 0; }

bool is_name(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Reads a name that begins at `at`, and moves `at` past the name. Empty if no name begins there.
std::string take_name(const std::string& text, size_t& at) {
  size_t start = at;
  while (at < text.size() && is_name(text[at])) ++at;
  return text.substr(start, at - start);
}

void skip_space(const std::string& text, size_t& at) {
  while (at < text.size()) {
    if (isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    } else if (text[at] == '#') {  // a line marker
      at = std::min(text.find('\n', at), text.size());
    } else {
      return;
    }
  }
}

// Reads the text between the parentheses that open at `at`, and moves `at` past them.
std::string take_parentheses(const std::string& text, size_t& at) {
  size_t start = ++at;
  for (int depth = 1; at < text.size(); ++at) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (depth == 0) break;
  }
  std::string inner = text.substr(start, at - start);
  at = std::min(at + 1, text.size());
  return inner;
}

std::string first_argument(const std::string& arguments) {
  int depth = 0;
  for (size_t at = 0; at < arguments.size(); ++at) {
    depth += (arguments[at] == '(') - (arguments[at] == ')');
    if (arguments[at] == ',' && depth == 0) return arguments.substr(0, at);
  }
  return arguments;
}

}  // namespace

std::string read_options(const std::vector<std::string>& texts, Options& options) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    // The value of `--name=value`, `-short=value`, `-short value`: as many ways as NVRTC knows.
    auto value = [&](const char* name, std::string& to) {
      if (text == name && i + 1 < texts.size()) return to = texts[++i], true;
      if (!starts_with(text, name)) return false;
      size_t length = strlen(name);
      if (text.size() <= length) return false;
      bool letter = length == 2;  // -Dname
      if (text[length] != '=' && !letter) return false;
      to = text.substr(length + (text[length] == '='));
      return true;
    };
    std::string given;
    if (value("--define-macro", given) || value("-D", given)) {
      options.macros.push_back("-D" + given);
    } else if (value("--undefine-macro", given) || value("-U", given)) {
      options.macros.push_back("-U" + given);
    } else if (value("--include-path", given) || value("-I", given)) {
      options.macros.push_back("-I" + given);
    } else if (value("--gpu-architecture", given) || value("-arch", given)) {
      bool real = starts_with(given, "sm_");
      if (!real && !starts_with(given, "compute_")) return text;
      options.architecture = real ? strtoul(given.c_str() + 3, nullptr, 10) : 0;
    } else if (value("--std", given) || value("-std", given)) {
      // The library's own part needs C++17.
      options.standard = given == "c++20" ? given : "c++17";
    } else {
      static const char* const ignored[] = {
          "--fmad", "-fmad", "--ftz", "-ftz", "--prec-sqrt", "-prec-sqrt", "--prec-div", "-prec-div",
          "--use_fast_math", "-use_fast_math", "--maxrregcount", "-maxrregcount", "--device-debug", "-G",
          "--generate-line-info", "-lineinfo", "--extra-device-vectorization", "--restrict", "-restrict",
          "--default-device", "-default-device", "--disable-warnings", "-w", "--device-as-default-execution-space",
          "--dopt", "-dopt", "--ptxas-options", "-Xptxas", "--diag-suppress", "-diag-suppress", "--minimal",
          "-minimal", "--split-compile", "--builtin-move-forward", "--builtin-initializer-list", "--modify-stack-limit",
      };
      bool known = std::any_of(std::begin(ignored), std::end(ignored), [&](const char* name) {
        size_t length = strlen(name);
        return starts_with(text, name) && (text.size() == length || text[length] == '=');
      });
      if (!known) return text;
    }
  }
  return "";
}

std::vector<FoundKernel> find_kernels(const std::string& source) {
  static const std::string marker = "__global__";
  std::vector<FoundKernel> kernels;
  for (size_t found = source.find(marker); found != std::string::npos; found = source.find(marker, found + 1)) {
    size_t at = found + marker.size();
    if ((found && is_name(source[found - 1])) || (at < source.size() && is_name(source[at]))) continue;
    // Only functions with a C name count, because the driver cannot find others by name. `extern "C" {` counts for
    // all functions.
    size_t end = source.find_last_of(";{}", found);
    size_t start = end == std::string::npos ? 0 : end;
    std::string before = source.substr(start, found - start);
    bool named = before.find("extern \"C\"") != std::string::npos || source.find("extern \"C\" {") < found ||
                 source.find("extern \"C\"{") < found;
    if (!named || before.find("template") != std::string::npos) continue;

    FoundKernel kernel;
    while (at < source.size()) {
      skip_space(source, at);
      std::string name = take_name(source, at);
      if (name.empty()) break;
      skip_space(source, at);
      if (at >= source.size() || source[at] != '(') continue;
      if (name == "__launch_bounds__") {
        kernel.max_threads = first_argument(take_parentheses(source, at));
      } else if (name == "__attribute__" || name == "alignas") {
        take_parentheses(source, at);
      } else {
        kernel.name = name;
        break;
      }
    }
    if (kernel.name.empty()) continue;
    // A kernel may be declared first and defined later. Launch bounds may be at either place.
    auto same = std::find_if(kernels.begin(), kernels.end(), [&](auto& other) { return other.name == kernel.name; });
    if (same == kernels.end()) {
      kernels.push_back(kernel);
    } else if (same->max_threads.empty()) {
      same->max_threads = kernel.max_threads;
    }
  }
  return kernels;
}

std::string describe_module(const std::vector<FoundKernel>& kernels, unsigned long version, unsigned architecture) {
  std::ostringstream text;
  text << "\n# 1 \"pretend GPU\"\nstatic const pretend_kernel pretend_kernels[] = {\n";
  for (auto& kernel : kernels) {
    std::string run = "pretend_run<&" + kernel.name + ">";
    text << "{\"" << kernel.name << "\", " << run << "::run, " << run << "::count, " << run << "::sizes, " << run
         << "::alignments, " << (kernel.max_threads.empty() ? "0" : kernel.max_threads) << "},\n";
  }
  text << "{}};\n"
       << "extern \"C\" __attribute__((visibility(\"default\"))) const pretend_module pretend_gpu_module = {" << version
       << "ul, " << architecture << ", " << kernels.size() << ", pretend_kernels, pretend_attach, pretend_touch_shared};\n";
  return text.str();
}
