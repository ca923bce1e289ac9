// The values that chat templates compute with: Python's, as far as templates can see them.
//
// Strings, lists, tuples and dicts are immutable once shared (the sandbox of chat templates refuses
// changes), so values are passed around freely. Lifetime: reference counts; a Value may outlive its
// rendering only if it holds no namespace, macro or loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "template/value/heap.h"

namespace pinfer::jinja {

enum class Type : uint8_t {
  MISSING,    // a variable without a value; never seen by expressions
  UNDEFINED,  // Jinja2's undefined
  NONE,
  BOOL,
  INT,
  FLOAT,
  STRING,
  LIST,
  TUPLE,
  DICT,
  DICT_VIEW,  // keys(), values(), items()
  RANGE,
  ITERATOR,  // generators of filters, reversed()
  NAMESPACE,
  LOOP,
  MACRO,
  FUNCTION,  // a global function
  METHOD,    // a method bound to its object
  CYCLER,
  JOINER,
};

// Base of everything that lives on the heap of a rendering.
class Object {
 public:
  Object() = default;
  virtual ~Object() {
    if (heap_ != nullptr) heap_->release(bytes_);
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Charges `bytes` to the heap until this object ends. REQUIRES: called once.
  void charge(Heap& heap, size_t bytes) {
    heap.reserve(bytes);
    heap_ = &heap;
    bytes_ = bytes;
  }
  int depth() const { return depth_; }  // levels of containers below and with this one
  void set_depth(int depth) { depth_ = depth; }

 private:
  Heap* heap_ = nullptr;
  size_t bytes_ = 0;
  int depth_ = 0;
};

struct StringObject;
struct ListObject;
class DictObject;

class Value {
 public:
  Value() = default;  // MISSING
  static Value none() { return Value(Type::NONE); }
  static Value boolean(bool value) {
    Value result(Type::BOOL);
    result.number_.boolean = value;
    return result;
  }
  static Value integer(int64_t value) {
    Value result(Type::INT);
    result.number_.integer = value;
    return result;
  }
  static Value real(double value) {
    Value result(Type::FLOAT);
    result.number_.real = value;
    return result;
  }
  static Value object(Type type, std::shared_ptr<Object> object) {
    Value result(type);
    result.object_ = std::move(object);
    return result;
  }
  // A string that belongs to no rendering: constants of a tree.
  static Value constant(std::string text);

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_missing() const { return type_ == Type::MISSING; }
  bool is_undefined() const { return type_ == Type::UNDEFINED; }
  bool is_none() const { return type_ == Type::NONE; }
  bool is_string() const { return type_ == Type::STRING; }
  bool is_dict() const { return type_ == Type::DICT; }
  bool is_sequence() const { return type_ == Type::LIST || type_ == Type::TUPLE; }
  bool is_integral() const { return type_ == Type::INT || type_ == Type::BOOL; }
  bool is_number() const { return is_integral() || type_ == Type::FLOAT; }

  bool as_bool() const { return number_.boolean; }  // REQUIRES BOOL
  int64_t as_int() const {                          // REQUIRES is_integral()
    return type_ == Type::BOOL ? int64_t{number_.boolean} : number_.integer;
  }
  double as_double() const {  // REQUIRES is_number()
    return type_ == Type::FLOAT ? number_.real : static_cast<double>(as_int());
  }
  const std::string& text() const;          // REQUIRES is_string()
  const StringObject& string() const;       // REQUIRES is_string()
  const std::vector<Value>& items() const;  // REQUIRES is_sequence()
  const DictObject& dict() const;           // REQUIRES is_dict()
  template <typename T>
  T& as() const {  // REQUIRES that the object is a T
    return static_cast<T&>(*object_);
  }
  const Object* object() const { return object_.get(); }
  int depth() const { return object_ == nullptr ? 0 : object_->depth(); }
  // Python's `is`.
  bool is_same(const Value& other) const;

 private:
  explicit Value(Type type) : type_(type) {}

  Type type_ = Type::MISSING;
  union {
    bool boolean;
    int64_t integer;
    double real;
  } number_ = {.integer = 0};
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  StringObject(std::string text_in, bool is_markup_in);
  const std::string text;  // valid UTF-8
  const int64_t num_chars;
  const bool is_markup;  // text that needs no escaping: the `safe` and `escape` filters make it
  bool is_ascii() const { return static_cast<size_t>(num_chars) == text.size(); }
};

struct ListObject : Object {
  std::vector<Value> items;
  bool is_group = false;  // a pair of groupby, with the names `grouper` and `list`
};

struct UndefinedObject : Object {
  std::string message;  // what an operation on it says
};

struct DictViewObject : Object {
  enum class Kind { KEYS, VALUES, ITEMS };
  Value dict;
  Kind kind = Kind::KEYS;
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t length() const;
  int64_t at(int64_t index) const { return start + index * step; }
};

// Something that gives its elements once, on demand.
class IteratorObject : public Object {
 public:
  virtual bool next(Value& element) = 0;
  virtual const char* type_name() const = 0;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// Makers. Each charges the heap and refuses values nested too deeply.
Value make_string(Heap& heap, std::string text, bool is_markup = false);
Value make_list(Heap& heap, std::vector<Value> items);
Value make_tuple(Heap& heap, std::vector<Value> items, bool is_group = false);
Value make_undefined(Heap& heap, std::string message);
Value make_undefined_name(Heap& heap, std::string_view name);
Value make_range(Heap& heap, int64_t start, int64_t stop, int64_t step);
Value make_dict_view(Heap& heap, Value dict, DictViewObject::Kind kind);
Value make_iterator(Heap& heap, std::shared_ptr<IteratorObject> iterator, int source_depth);
// The depth of a container of these; throws if it is too deep.
int container_depth(const Heap& heap, int deepest_child);
int deepest(const std::vector<Value>& items);

// Python's name of a value's type: "str", "NoneType", ...
std::string type_name(const Value& value);
// As Jinja2's messages name an object: "None", "dict object", ...
std::string object_description(const Value& value);

bool is_truthy(const Value& value);

}  // namespace pinfer::jinja
