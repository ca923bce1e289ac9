// Reads a compiled template (one `root` of chat_template.json) into nodes.
//
// The JSON may be damaged or hostile: every node, slot and name is checked here, so that the
// evaluator need not.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "core/status.h"
#include "template/tree/statements.h"

namespace pinfer::jinja {

// Deepest nesting of nodes; the exporter has the same limit.
inline constexpr int kMaxTreeDepth = 600;
// Most variables of one function.
inline constexpr int64_t kMaxSlots = 100'000;

// DATA_LOSS naming the path of the node, what was expected and what was found.
Result<std::unique_ptr<RootNode>> load_tree(const nlohmann::ordered_json& root);

}  // namespace pinfer::jinja
