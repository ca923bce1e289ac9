// Builds expression nodes from the JSON of a compiled template. Private to tree/.
#pragma once

#include <vector>

#include "template/tree/expressions.h"
#include "template/tree/node_reader.h"

namespace pinfer::jinja {

class ExpressionLoader {
 public:
  ExpressionPtr load(const NodeReader& node);
  // null in the JSON gives nullptr.
  ExpressionPtr load_optional(const NodeReader& node, std::string_view field);

 protected:
  // The functions around the node being read, outermost first.
  struct FunctionScope {
    int64_t num_slots = 0;
    bool has_functions = false;
    int num_loops = 0;  // loops of this function around the node
  };

  VariableRef load_variable(const NodeReader& node, std::string_view slot_field = "slot");
  int load_local_slot(const NodeReader& node, std::string_view field);
  static int load_line(const NodeReader& node);

  std::vector<FunctionScope> functions_;
  int depth_ = 0;
  // Whether a filter without an operand stands for the text of a block.
  bool in_block_filter_ = false;

 private:
  ExpressionPtr load_kind(const NodeReader& node, std::string_view kind);
  ExpressionPtr load_const(const NodeReader& node);
  ExpressionPtr load_binary(const NodeReader& node);
  ExpressionPtr load_compare(const NodeReader& node);
  ExpressionPtr load_filter(const NodeReader& node);
  ExpressionPtr load_test(const NodeReader& node);
  std::vector<ExpressionPtr> load_list(const NodeReader& node, std::string_view field);
  CallArguments load_arguments(const NodeReader& node);
};

// Counts nested nodes; throws TreeError beyond kMaxTreeDepth.
class TreeDepth {
 public:
  TreeDepth(int& depth, const NodeReader& node);
  ~TreeDepth() { --depth_; }
  TreeDepth(const TreeDepth&) = delete;
  TreeDepth& operator=(const TreeDepth&) = delete;

 private:
  int& depth_;
};

}  // namespace pinfer::jinja
