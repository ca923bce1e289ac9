#include "engine/json_input.h"

#include <string>

namespace pinfer {

Result<nlohmann::ordered_json> parse_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  bool too_deep = false;
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxJsonDepth;
    return !too_deep;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), check_depth);
    if (too_deep) {
      return Status::invalid_argument("JSON is nested deeper than " +
                                      std::to_string(kMaxJsonDepth));
    }
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    return Status::invalid_argument("not valid JSON, at byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception& error) {  // a number beyond what a double holds
    return Status::invalid_argument(std::string("not valid JSON: ") + error.what());
  }
}

}  // namespace pinfer
