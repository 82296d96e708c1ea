#include "shared_sizes.h"
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <link.h>

namespace {

// The function whose variable this is, from its mangled name `_ZZ<function>E<variable>`.
std::string function_of(const char* symbol) {
  if (strncmp(symbol, "_ZZ", 3) != 0) return "";
  char* rest;
  unsigned long length = strtoul(symbol + 3, &rest, 10);
  // A function with C's name is only its length and its name.
  if (rest != symbol + 3 && strlen(rest) > length && rest[length] == 'E') return std::string(rest, length);
  return std::string(symbol, strrchr(symbol, 'E') - symbol);
}

}  // namespace

std::map<std::string, size_t> shared_sizes(const char* image, size_t bytes) {
  std::map<std::string, size_t> sizes;
  auto header = reinterpret_cast<const ElfW(Ehdr)*>(image);
  if (bytes < sizeof *header || header->e_shoff + header->e_shnum * sizeof(ElfW(Shdr)) > bytes) return sizes;
  auto sections = reinterpret_cast<const ElfW(Shdr)*>(image + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    auto symbols = reinterpret_cast<const ElfW(Sym)*>(image + sections[i].sh_offset);
    const char* names = image + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if ((symbols[s].st_info & 15) != STT_TLS) continue;
      std::string function = function_of(names + symbols[s].st_name);
      if (!function.empty()) sizes[function] += symbols[s].st_size;
    }
  }
  return sizes;
}
