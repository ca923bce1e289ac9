#include "tokenizer/oniguruma.h"

#include <dlfcn.h>

#include <array>

namespace pinfer {

namespace {

// What is used of the library's C interface (version 6, libonig.so.5).
using Byte = unsigned char;
struct ErrorInfo {
  void* encoding;
  Byte* argument;
  Byte* argument_end;
};
struct Region {
  int allocated;
  int num_regs;
  int* begin;
  int* end;
  void* history_root;
};
constexpr int kMismatch = -1;
constexpr unsigned int kNoOptions = 0;
constexpr size_t kMaxMessage = 90;  // ONIG_MAX_ERROR_MESSAGE_LEN

template <typename Function>
bool load(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  return *function != nullptr;
}

}  // namespace

struct OnigurumaPattern::Library {
  void* handle = nullptr;
  void* utf8 = nullptr;    // OnigEncodingUTF8
  void* syntax = nullptr;  // OnigSyntaxRuby, which the reference uses
  int (*initialize)(void** encodings, int count) = nullptr;
  int (*make)(void** regex, const Byte* pattern, const Byte* pattern_end, unsigned int options,
              void* encoding, void* syntax, ErrorInfo* error) = nullptr;
  void (*destroy)(void* regex) = nullptr;
  int (*search)(void* regex, const Byte* text, const Byte* end, const Byte* start,
                const Byte* range, Region* region, unsigned int options) = nullptr;
  Region* (*new_region)() = nullptr;
  void (*free_region)(Region* region, int free_self) = nullptr;
  int (*describe)(Byte* buffer, int code, ...) = nullptr;

  ~Library() {
    if (handle != nullptr) ::dlclose(handle);
  }

  bool load_functions() {
    return load(handle, "OnigEncodingUTF8", &utf8) && load(handle, "OnigSyntaxRuby", &syntax) &&
           load(handle, "onig_initialize", &initialize) && load(handle, "onig_new", &make) &&
           load(handle, "onig_free", &destroy) && load(handle, "onig_search", &search) &&
           load(handle, "onig_region_new", &new_region) &&
           load(handle, "onig_region_free", &free_region) &&
           load(handle, "onig_error_code_to_str", &describe);
  }

  static Result<std::shared_ptr<const Library>> open(const std::vector<std::string>& directories) {
    std::vector<std::string> names;
    for (const std::string& directory : directories) names.push_back(directory + "/libonig.so.5");
    names.push_back("libonig.so.5");
    std::string reasons;
    for (const std::string& name : names) {
      auto library = std::make_shared<Library>();
      library->handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library->handle != nullptr && library->load_functions() &&
          library->initialize(&library->utf8, 1) == 0) {
        return std::shared_ptr<const Library>(std::move(library));
      }
      const char* reason = ::dlerror();
      reasons += "; " + (reason != nullptr ? std::string(reason) : name + ": not Oniguruma 6");
    }
    return Status::failed_precondition(
        "the tokenizer's pattern needs Oniguruma (libonig.so.5), which cannot be loaded" + reasons);
  }
};

Result<std::unique_ptr<OnigurumaPattern>> OnigurumaPattern::compile(
    const std::string& pattern, const std::vector<std::string>& directories) {
  PINFER_ASSIGN_OR_RETURN(std::shared_ptr<const Library> library, Library::open(directories));
  const auto* bytes = reinterpret_cast<const Byte*>(pattern.data());
  void* regex = nullptr;
  ErrorInfo error{};
  const int code = library->make(&regex, bytes, bytes + pattern.size(), kNoOptions, library->utf8,
                                 library->syntax, &error);
  if (code != 0) {
    std::array<Byte, kMaxMessage> message{};
    library->describe(message.data(), code, &error);
    return Status::invalid_argument("pattern '" + pattern +
                                    "': " + reinterpret_cast<const char*>(message.data()));
  }
  return std::unique_ptr<OnigurumaPattern>(new OnigurumaPattern(std::move(library), regex));
}

OnigurumaPattern::~OnigurumaPattern() { library_->destroy(regex_); }

Status OnigurumaPattern::find(std::string_view text, size_t from, PatternMatch* match,
                              bool* found) const {
  const auto* begin = reinterpret_cast<const Byte*>(text.data());
  const Byte* end = begin + text.size();
  Region* region = library_->new_region();
  if (region == nullptr) return Status::resource_exhausted("no memory for a pattern's match");
  const int code = library_->search(regex_, begin, end, begin + from, end, region, kNoOptions);
  *found = code >= 0;
  if (*found) {
    *match = {static_cast<size_t>(region->begin[0]), static_cast<size_t>(region->end[0])};
  }
  library_->free_region(region, 1);
  if (code >= 0 || code == kMismatch) return Status::ok_status();
  std::array<Byte, kMaxMessage> message{};
  library_->describe(message.data(), code, nullptr);
  return Status::resource_exhausted("the tokenizer's pattern gives up on this text: " +
                                    std::string(reinterpret_cast<const char*>(message.data())));
}

}  // namespace pinfer
