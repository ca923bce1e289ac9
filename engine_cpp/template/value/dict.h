// Python's dict: keeps the order of insertion, finds keys by hash and equality.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "template/value/value.h"

namespace pinfer::jinja {

class DictObject : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

  // nullptr if there is no such key. REQUIRES is_hashable(key).
  const Value* find(Heap& heap, const Value& key) const;
  const Value* find(std::string_view key) const;
  // Replaces the value of an equal key, which keeps its place. REQUIRES is_hashable(key).
  void set(Heap& heap, Value key, Value value);

 private:
  size_t position(Heap& heap, const Value& key, size_t hash) const;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> positions_;  // hash -> index
};

// Collects entries, then makes the (immutable) value.
class DictBuilder {
 public:
  explicit DictBuilder(Heap& heap);
  // Throws RenderError if the key cannot be hashed.
  void set(Value key, Value value);
  void set(std::string_view key, Value value);
  Value build();

 private:
  Heap& heap_;
  std::shared_ptr<DictObject> dict_;
  int deepest_ = 0;
};

bool is_hashable(const Value& value);
// Equal values have equal hashes. REQUIRES is_hashable(value).
size_t hash_value(Heap& heap, const Value& value);
// Throws Python's TypeError if the value cannot be a key.
void check_hashable(const Value& value);

}  // namespace pinfer::jinja
