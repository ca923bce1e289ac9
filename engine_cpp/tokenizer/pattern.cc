#include "tokenizer/pattern.h"

#include <nlohmann/json.hpp>

#include "core/utf8.h"

namespace pinfer {

namespace {

constexpr size_t kMaxNodes = 4096;  // also bounds the depth of recursion
constexpr size_t kMaxChildren = 1 << 16;
constexpr uint32_t kMaxClassBits = 64;
// Far more than a pattern takes that goes over the text a few times.
constexpr uint64_t kMaxSteps = 10'000'000;
constexpr uint64_t kStepsPerByte = 16;

}  // namespace

uint64_t Pattern::mask_at(std::string_view text, size_t position) const {
  const auto byte = static_cast<unsigned char>(text[position]);
  return byte < 0x80 ? ascii_masks_[byte] : classes_->mask(read_code_point(text, position).value);
}

Status Pattern::find(std::string_view text, size_t from, PatternMatch* match_out,
                     bool* found) const {
  Search search{text, kMaxSteps + kStepsPerByte * text.size()};
  *found = false;
  for (size_t begin = from; begin <= text.size();) {
    const size_t end = match(start_, &search, begin);
    if (search.steps_left == 0) {
      return Status::resource_exhausted("the tokenizer's pattern gives up on this text");
    }
    if (end != kNoMatch) {
      *match_out = {begin, end};
      *found = true;
      break;
    }
    begin += begin < text.size() ? read_code_point(text, begin).size : 1;
  }
  return Status::ok_status();
}

size_t Pattern::consume(uint64_t mask, std::string_view text, size_t position, uint32_t limit,
                        uint32_t* count) const {
  uint32_t taken = 0;
  while (taken < limit && position < text.size()) {
    const auto byte = static_cast<unsigned char>(text[position]);
    if (byte < 0x80) {
      if (!(ascii_masks_[byte] & mask)) break;
      ++position;
    } else {
      const CodePoint code_point = read_code_point(text, position);
      if (!(classes_->mask(code_point.value) & mask)) break;
      position += code_point.size;
    }
    ++taken;
  }
  *count = taken;
  return position;
}

size_t Pattern::match_class(const Node& node, Search* search, size_t position) const {
  const std::string_view text = search->text;
  uint32_t count = 0;
  if (node.mode == LoopMode::LAZY) {
    size_t end = consume(node.mask, text, position, node.min, &count);
    if (count < node.min) return kNoMatch;
    while (true) {
      const size_t result = match(node.next, search, end);
      uint32_t step = 0;
      if (result != kNoMatch || count == node.max) return result;
      end = consume(node.mask, text, end, 1, &step);
      if (step == 0) return kNoMatch;
      ++count;
    }
  }
  size_t end = consume(node.mask, text, position, node.max, &count);
  if (count < node.min) return kNoMatch;
  if (node.mode == LoopMode::POSSESSIVE || count == node.min) return match(node.next, search, end);
  while (true) {
    const size_t result = match(node.next, search, end);
    if (result != kNoMatch || count == node.min) return result;
    end = previous_code_point(text, end);
    --count;
  }
}

size_t Pattern::match_class_sequence(const Node& node, Search* search, size_t position) const {
  const std::string_view text = search->text;
  uint32_t rounds = 0;
  size_t end = position;
  const auto one_round = [&](size_t from) {
    for (const uint64_t mask : node.masks) {
      uint32_t count = 0;
      from = consume(mask, text, from, 1, &count);
      if (count == 0) return kNoMatch;
    }
    return from;
  };
  while (rounds < (node.mode == LoopMode::LAZY ? node.min : node.max)) {
    const size_t after = one_round(end);
    if (after == kNoMatch) break;
    end = after;
    ++rounds;
  }
  if (rounds < node.min) return kNoMatch;
  while (true) {
    const size_t result = match(node.next, search, end);
    if (result != kNoMatch || node.mode == LoopMode::POSSESSIVE) return result;
    if (node.mode == LoopMode::LAZY) {
      if (rounds == node.max) return kNoMatch;
      end = one_round(end);
      if (end == kNoMatch) return kNoMatch;
      ++rounds;
    } else {
      if (rounds == node.min) return kNoMatch;
      for (size_t i = 0; i < node.masks.size(); ++i) end = previous_code_point(text, end);
      --rounds;
    }
  }
}

bool Pattern::holds(const Node& node, std::string_view text, size_t position) const {
  switch (node.kind) {
    case PatternNodeKind::BEGIN_TEXT:
      return position == 0;
    case PatternNodeKind::END_TEXT:
      return position == text.size();
    case PatternNodeKind::BEGIN_LINE:
      return position == 0 || (text[position - 1] == '\n' && position < text.size());
    case PatternNodeKind::END_LINE:
      return position == text.size() || text[position] == '\n';
    default: {  // WORD_BOUNDARY
      const bool before =
          position > 0 && (mask_at(text, previous_code_point(text, position)) & node.mask);
      const bool after = position < text.size() && (mask_at(text, position) & node.mask);
      return (before != after) != node.negate;
    }
  }
}

size_t Pattern::match(uint32_t start, Search* search, size_t position) const {
  const std::string_view text = search->text;
  uint32_t index = start;
  while (true) {
    if (search->steps_left == 0 || --search->steps_left == 0) return kNoMatch;
    const Node& node = nodes_[index];
    switch (node.kind) {
      case PatternNodeKind::END:
        return position;
      case PatternNodeKind::CLASS:
        return match_class(node, search, position);
      case PatternNodeKind::CLASS_SEQUENCE:
        return match_class_sequence(node, search, position);
      case PatternNodeKind::LITERAL:
        if (text.substr(position, node.text.size()) != node.text) return kNoMatch;
        position += node.text.size();
        break;
      case PatternNodeKind::ALTERNATIVES: {
        const bool is_ascii = position < text.size() && !(text[position] & 0x80);
        const auto& children =
            is_ascii ? node.by_ascii[static_cast<unsigned char>(text[position])] : node.by_other;
        for (const uint32_t child : children) {
          const size_t end = match(child, search, position);
          if (end != kNoMatch) return end;
        }
        return kNoMatch;
      }
      case PatternNodeKind::LOOKAHEAD:
        if ((match(node.inner, search, position) != kNoMatch) == node.negate) return kNoMatch;
        break;
      case PatternNodeKind::ATOMIC:
        position = match(node.inner, search, position);
        if (position == kNoMatch) return kNoMatch;
        break;
      default:
        if (!holds(node, text, position)) return kNoMatch;
        break;
    }
    index = node.next;
  }
}

Pattern::FirstSet Pattern::first_set(uint32_t index, const std::vector<FirstSet>& known) const {
  const Node& node = nodes_[index];
  FirstSet set;
  const auto join = [&set](const FirstSet& other) {
    set.mask |= other.mask;
    set.any = set.any || other.any;
    for (size_t i = 0; i < set.ascii.size(); ++i) set.ascii[i] = set.ascii[i] || other.ascii[i];
  };
  switch (node.kind) {
    case PatternNodeKind::END:
      set.any = true;
      break;
    case PatternNodeKind::CLASS:
      set.mask = node.mask;
      if (node.min == 0) join(known[node.next]);
      break;
    case PatternNodeKind::CLASS_SEQUENCE:
      set.mask = node.masks[0];
      if (node.min == 0) join(known[node.next]);
      break;
    case PatternNodeKind::LITERAL: {
      const auto first = static_cast<unsigned char>(node.text[0]);
      if (first < 0x80) {
        set.ascii[first] = true;
      } else {
        set.any = true;
      }
      break;
    }
    case PatternNodeKind::ALTERNATIVES:
      for (const uint32_t child : node.children) join(known[child]);
      break;
    case PatternNodeKind::ATOMIC:
      join(known[node.inner]);
      break;
    default:  // what looks ahead takes nothing
      join(known[node.next]);
      break;
  }
  return set;
}

void Pattern::make_dispatch(Node* node, const std::vector<FirstSet>& known) const {
  node->by_ascii.resize(128);
  for (const uint32_t child : node->children) {
    const FirstSet& first = known[child];
    for (size_t c = 0; c < 128; ++c) {
      if (first.any || first.ascii[c] || (first.mask & ascii_masks_[c])) {
        node->by_ascii[c].push_back(child);
      }
    }
    if (first.any || first.mask != 0) node->by_other.push_back(child);
  }
}

Status Pattern::parse_node(const nlohmann::json& fields, uint32_t index) {
  Node node;
  const auto kind = fields.at(0).get<int>();
  const auto fail = [index](const char* what) {
    return Status::invalid_argument("pattern node " + std::to_string(index) + ": " + what);
  };
  if (kind < 0 || kind >= kNumPatternNodeKinds) return fail("unknown kind");
  node.kind = static_cast<PatternNodeKind>(kind);
  bool in_range = true;
  const auto earlier = [&](size_t field) {
    const auto target = fields.at(field).get<uint32_t>();
    in_range = in_range && target < index;
    return target;
  };
  const auto class_bit = [&](const nlohmann::json& value) {
    const auto bit = value.get<uint32_t>();
    in_range = in_range && bit < kMaxClassBits;
    return uint64_t{1} << (bit % kMaxClassBits);
  };
  const auto loop = [&] {
    node.min = fields.at(2).get<uint32_t>();
    node.max = fields.at(3).get<uint32_t>();
    const auto mode = fields.at(4).get<uint32_t>();
    in_range = in_range && node.min <= node.max && mode <= 2;
    node.mode = static_cast<LoopMode>(mode % 3);
    node.next = earlier(5);
  };
  switch (node.kind) {
    case PatternNodeKind::END:
      break;
    case PatternNodeKind::CLASS:
      node.mask = class_bit(fields.at(1));
      loop();
      break;
    case PatternNodeKind::CLASS_SEQUENCE:
      for (const auto& value : fields.at(1)) node.masks.push_back(class_bit(value));
      if (node.masks.empty()) return fail("a sequence of no classes");
      loop();
      break;
    case PatternNodeKind::ALTERNATIVES:
      for (const auto& value : fields.at(1)) {
        node.children.push_back(value.get<uint32_t>());
        in_range = in_range && node.children.back() < index;
      }
      num_children_ += node.children.size();
      if (num_children_ > kMaxChildren) return fail("too many alternatives");
      break;
    case PatternNodeKind::LITERAL:
      node.text = fields.at(1).get<std::string>();
      if (node.text.empty()) return fail("an empty literal");
      node.next = earlier(2);
      break;
    case PatternNodeKind::LOOKAHEAD:
      node.inner = earlier(1);
      node.negate = fields.at(2).get<int>() != 0;
      node.next = earlier(3);
      break;
    case PatternNodeKind::ATOMIC:
      node.inner = earlier(1);
      node.next = earlier(2);
      break;
    case PatternNodeKind::WORD_BOUNDARY:
      node.mask = class_bit(fields.at(1));
      node.negate = fields.at(2).get<int>() != 0;
      node.next = earlier(3);
      break;
    default:
      node.next = earlier(1);
      break;
  }
  if (!in_range) return fail("a field is out of range");
  nodes_.push_back(std::move(node));
  return Status::ok_status();
}

Result<Pattern> Pattern::parse(const nlohmann::json& program, const CharClasses& classes) {
  Pattern pattern;
  pattern.classes_ = &classes;
  pattern.ascii_masks_ = classes.first_page();
  const auto& nodes = program.at("nodes");
  if (nodes.empty() || nodes.size() > kMaxNodes) {
    return Status::invalid_argument("pattern: expected 1 to 4096 nodes, found " +
                                    std::to_string(nodes.size()));
  }
  std::vector<FirstSet> first_sets;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    PINFER_RETURN_IF_ERROR(pattern.parse_node(nodes[i], i));
    Node& node = pattern.nodes_.back();
    if (node.kind == PatternNodeKind::ALTERNATIVES) pattern.make_dispatch(&node, first_sets);
    first_sets.push_back(pattern.first_set(i, first_sets));
  }
  pattern.start_ = program.at("start").get<uint32_t>();
  if (pattern.start_ >= pattern.nodes_.size()) {
    return Status::invalid_argument("pattern: the start node is out of range");
  }
  return pattern;
}

}  // namespace pinfer
