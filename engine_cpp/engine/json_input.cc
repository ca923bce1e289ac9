#include "engine/json_input.h"

#include <string>

#include "json/wide_integer.h"

namespace pinfer {

Result<nlohmann::ordered_json> parse_json(std::string_view text) {
  using Json = nlohmann::ordered_json;
  bool too_deep = false;
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxJsonDepth;
    return !too_deep;
  };
  const auto refuse_wide = [&] {
    const auto number = find_wide_integer(text);
    return number.has_value() ? Status::invalid_argument(number->message()) : Status::ok_status();
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), check_depth);
    if (too_deep) {
      return Status::invalid_argument("JSON is nested deeper than " +
                                      std::to_string(kMaxJsonDepth));
    }
    PINFER_RETURN_IF_ERROR(refuse_wide());
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    return Status::invalid_argument("not valid JSON, at byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception& error) {  // a number beyond what a double holds
    PINFER_RETURN_IF_ERROR(refuse_wide());
    return Status::invalid_argument(std::string("not valid JSON: ") + error.what());
  }
}

}  // namespace pinfer
