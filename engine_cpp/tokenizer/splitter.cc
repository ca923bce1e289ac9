#include "tokenizer/splitter.h"

#include <nlohmann/json.hpp>

namespace pinfer {

Result<Splitter> Splitter::parse(const nlohmann::json& fields, const TextStepContext& context) {
  Splitter splitter;
  if (!fields.contains("program")) {
    PINFER_ASSIGN_OR_RETURN(splitter.oniguruma_,
                            OnigurumaPattern::compile(fields.at("regex").get<std::string>(),
                                                      context.library_directories));
    return splitter;
  }
  PINFER_ASSIGN_OR_RETURN(Pattern pattern, Pattern::parse(fields.at("program"), *context.classes));
  splitter.program_ = std::make_shared<const Pattern>(std::move(pattern));
  return splitter;
}

}  // namespace pinfer
