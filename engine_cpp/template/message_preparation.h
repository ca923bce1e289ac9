// What happens to messages before a template sees them. Private to template/.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "template/value/value.h"

namespace pinfer::jinja {

// Says whether a message of that role keeps its content as a list of parts.
using TakesParts = std::function<bool(std::string_view role)>;

// The messages as a list of dicts: keys without a value dropped, reasoning copied to the names that
// templates read, parts checked and joined. Throws RenderError naming the path.
Value prepare_messages(Heap& heap, const nlohmann::ordered_json& messages,
                       const TakesParts& takes_parts);

// For continue_final_message: the last message's text gets a mark, and what was rendered is cut
// there.
class FinalMessage {
 public:
  // `messages` is what prepare_messages gave; `source` the template's text.
  FinalMessage(Heap& heap, const Value& messages, std::string_view source);
  const Value& marked_messages() const { return marked_messages_; }
  std::string cut(const std::string& rendered) const;

 private:
  Value marked_messages_;
  std::string text_;
};

}  // namespace pinfer::jinja
