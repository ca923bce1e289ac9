#include "engine/text_processor.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <sstream>

#include "core/mapped_file.h"
#include "csrc/shim/own_folder.h"
#include "engine/json_input.h"

namespace pinfer {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.bin";
constexpr const char* kTemplateFile = "chat_template.json";

using Json = nlohmann::ordered_json;
using Clock = std::chrono::system_clock;

constexpr const char* kParseArguments = "parse_tool_call_arguments";
constexpr double kMaxSeconds = 253402300800;  // the year 10000

Status wrong_type(const std::string& key, const char* expected, const Json& value) {
  return Status::invalid_argument(key + ": expected " + expected + ", found " + value.type_name());
}

Status read_bool(const std::string& key, const Json& value, bool* out) {
  if (!value.is_boolean()) return wrong_type(key, "true or false", value);
  *out = value.get<bool>();
  return Status();
}

Status read_field(const std::string& key, const Json& value, RenderInput* input) {
  if (key == "messages" || key == "tools" || key == "documents") {
    if (!value.is_array() && !(value.is_null() && key != "messages")) {
      return wrong_type(key, "a list", value);
    }
    (key == "messages" ? input->messages
     : key == "tools"  ? input->tools
                       : input->documents) = value;
  } else if (key == "chat_template_kwargs") {
    if (!value.is_object() && !value.is_null()) return wrong_type(key, "an object", value);
    input->chat_template_kwargs = value;
  } else if (key == "add_generation_prompt") {
    bool wanted = true;
    PINFER_RETURN_IF_ERROR(read_bool(key, value, &wanted));
    input->add_generation_prompt = wanted;
  } else if (key == "continue_final_message") {
    return read_bool(key, value, &input->continue_final_message);
  } else if (key == "now") {
    if (!value.is_number()) return wrong_type(key, "seconds since 1970", value);
    const std::chrono::duration<double> seconds(value.get<double>());
    if (!(std::abs(seconds.count()) < kMaxSeconds)) {
      return Status::invalid_argument("now: expected a time up to the year 9999");
    }
    input->now = Clock::time_point(std::chrono::duration_cast<Clock::duration>(seconds));
  } else if (key == "chat_template") {
    if (!value.is_string()) return wrong_type(key, "a template's name", value);
    input->template_name = value.get<std::string>();
  } else {
    return Status::invalid_argument("unknown field " + key.substr(0, 80));
  }
  return Status();
}

// What the templates' clock shows: PINFER_NOW (a local ISO time, for tests), else the time.
Result<Clock::time_point> current_time() {
  const char* fixed = std::getenv("PINFER_NOW");
  if (fixed == nullptr || *fixed == '\0') return Clock::now();
  constexpr size_t kSize = 19;  // get_time() is content with less
  std::tm time{};
  std::istringstream text(fixed);
  text >> std::get_time(&time, "%Y-%m-%dT%H:%M:%S");
  if (text.fail() || std::string_view(fixed).size() != kSize) {
    return Status::invalid_argument(
        std::string("PINFER_NOW: expected YYYY-MM-DDThh:mm:ss, found ") + fixed);
  }
  time.tm_isdst = -1;
  return Clock::from_time_t(std::mktime(&time));
}

// Libraries that few tokenizers need are shipped beside this program or library; where the program
// lies in bin/, in the lib/ beside that.
TokenizerOptions tokenizer_options() {
  TokenizerOptions options;
  const std::filesystem::path folder = own_folder();
  options.library_directories = {folder.string(), (folder.parent_path() / "lib").string()};
  return options;
}

}  // namespace

Result<std::unique_ptr<TextProcessor>> TextProcessor::open(const Bundle& bundle) {
  auto text = std::make_unique<TextProcessor>();
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> tables, bundle.files().map(kTokenizerFile));
  PINFER_ASSIGN_OR_RETURN(text->tokenizer_,
                          Tokenizer::open(std::move(tables), tokenizer_options()));
  if (bundle.has_file(kTemplateFile)) {
    PINFER_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file,
                            bundle.files().map(kTemplateFile));
    Result<std::unique_ptr<ChatTemplate>> chat_template = ChatTemplate::from_json(
        {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    if (!chat_template.ok()) {
      return Status(chat_template.status().code(),
                    file->path() + ": " + chat_template.status().message());
    }
    text->chat_template_ = chat_template.take();
  }
  return text;
}

Result<std::string> TextProcessor::render(std::string_view request_json) const {
  if (chat_template_ == nullptr) {
    return Status::failed_precondition("the model has no chat template");
  }
  PINFER_ASSIGN_OR_RETURN(const Json json, parse_json(request_json));
  if (!json.is_object()) return Status::invalid_argument("expected a JSON object");
  RenderInput input;
  PINFER_ASSIGN_OR_RETURN(input.now, current_time());
  for (const auto& [key, value] : json.items()) {
    if (key != kParseArguments) PINFER_RETURN_IF_ERROR(read_field(key, value, &input));
  }
  if (const auto wanted = json.find(kParseArguments); wanted != json.end()) {
    bool parse = false;
    PINFER_RETURN_IF_ERROR(read_bool(kParseArguments, *wanted, &parse));
    if (parse) PINFER_RETURN_IF_ERROR(parse_tool_call_arguments(input.messages, kMaxJsonDepth));
  }
  if (!json.contains("messages")) return Status::invalid_argument("messages: missing");
  return chat_template_->render(input);
}

}  // namespace pinfer
