#include "template/builtins/operators.h"

#include <cmath>

#include "template/builtins/percent_format.h"
#include "template/text/python_text.h"
#include "template/value/compare.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

const char* symbol_of(BinaryOperator op) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<int>(op)];
}

[[noreturn]] void fail_operands(BinaryOperator op, const Value& left, const Value& right) {
  throw RenderError("unsupported operand type(s) for " + std::string(symbol_of(op)) + ": '" +
                    type_name(left) + "' and '" + type_name(right) + "'");
}

[[noreturn]] void fail_overflow() {
  throw RenderError("the integer result needs more than 64 bits");
}

[[noreturn]] void fail_zero(BinaryOperator op, bool is_float) {
  if (op == BinaryOperator::DIV) {
    throw RenderError(is_float ? "float division by zero" : "division by zero");
  }
  throw RenderError(is_float ? "float floor division or modulo by zero"
                             : "integer division or modulo by zero");
}

int64_t int_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value float_power(double base, double exponent) {
  if (base == 0.0 && exponent < 0) {
    throw RenderError("0.0 cannot be raised to a negative power");
  }
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      std::trunc(exponent) != exponent) {
    throw RenderError("complex numbers are not supported");
  }
  double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    throw RenderError("(34, 'Numerical result out of range')");
  }
  return Value::real(result);
}

// The quotient rounded once, as Python has it; doubles do not hold every integer.
double int_quotient(int64_t left, int64_t right) {
  const auto magnitude = [](int64_t value) {
    return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  };
  unsigned __int128 rest = magnitude(left), divisor = magnitude(right);
  if (rest == 0) return right < 0 ? -0.0 : 0.0;
  // At least 55 bits of the quotient, the last one set where there is a rest.
  int shift = 0;
  while (rest >> 120 == 0) rest <<= 1, ++shift;
  unsigned __int128 quotient = rest / divisor;
  uint64_t sticky = rest % divisor != 0 ? 1 : 0;
  while (quotient >> 62 != 0) {
    sticky |= static_cast<uint64_t>(quotient & 1);
    quotient >>= 1;
    --shift;
  }
  double result = std::ldexp(static_cast<double>(static_cast<uint64_t>(quotient) | sticky), -shift);
  return (left < 0) != (right < 0) ? -result : result;
}

Value int_operation(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::ADD:
      if (__builtin_add_overflow(left, right, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOperator::SUB:
      if (__builtin_sub_overflow(left, right, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOperator::MUL:
      if (__builtin_mul_overflow(left, right, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOperator::DIV:
      if (right == 0) fail_zero(op, false);
      return Value::real(int_quotient(left, right));
    case BinaryOperator::FLOOR_DIV:
    case BinaryOperator::MOD: {
      if (right == 0) fail_zero(op, false);
      if (right == -1) {
        if (op == BinaryOperator::MOD) return Value::integer(0);
        if (left == INT64_MIN) fail_overflow();
        return Value::integer(-left);
      }
      int64_t quotient = left / right, remainder = left % right;
      bool adjust = remainder != 0 && ((remainder < 0) != (right < 0));  // towards minus infinity
      if (op == BinaryOperator::MOD) return Value::integer(adjust ? remainder + right : remainder);
      return Value::integer(adjust ? quotient - 1 : quotient);
    }
    case BinaryOperator::POW:
      if (right < 0) return float_power(static_cast<double>(left), static_cast<double>(right));
      return Value::integer(int_power(left, right));
  }
  return Value::none();
}

// Quotient and remainder as CPython computes them for floats.
std::pair<double, double> float_divmod(double left, double right) {
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0.0) {
    if ((right < 0) != (remainder < 0)) {
      remainder += right;
      quotient -= 1.0;
    }
  } else {
    remainder = std::copysign(0.0, right);
  }
  if (quotient != 0.0) {
    double floored = std::floor(quotient);
    if (quotient - floored > 0.5) floored += 1.0;
    quotient = floored;
  } else {
    quotient = std::copysign(0.0, left / right);
  }
  return {quotient, remainder};
}

Value float_operation(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::ADD:
      return Value::real(left + right);
    case BinaryOperator::SUB:
      return Value::real(left - right);
    case BinaryOperator::MUL:
      return Value::real(left * right);
    case BinaryOperator::DIV:
      if (right == 0.0) fail_zero(op, true);
      return Value::real(left / right);
    case BinaryOperator::FLOOR_DIV:
      if (right == 0.0) fail_zero(op, true);
      return Value::real(float_divmod(left, right).first);
    case BinaryOperator::MOD:
      if (right == 0.0) fail_zero(op, true);
      return Value::real(float_divmod(left, right).second);
    case BinaryOperator::POW:
      return float_power(left, right);
  }
  return Value::none();
}

Value add_strings(Heap& heap, const Value& left, const Value& right) {
  bool is_markup = left.string().is_markup || right.string().is_markup;
  if (is_markup) {
    return make_string(heap, escaped(heap, left) + escaped(heap, right), true);
  }
  heap.check_text_size(left.text().size() + right.text().size());
  return make_string(heap, left.text() + right.text());
}

Value add_sequences(Heap& heap, const Value& left, const Value& right) {
  heap.check_num_items(left.items().size() + right.items().size());
  std::vector<Value> items;
  items.reserve(left.items().size() + right.items().size());
  items.insert(items.end(), left.items().begin(), left.items().end());
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Type::LIST) ? make_list(heap, std::move(items))
                             : make_tuple(heap, std::move(items));
}

Value repeat(Heap& heap, const Value& value, int64_t times) {
  size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  size_t size = value.is_string() ? value.text().size() : value.items().size();
  size_t total = 0;
  if (__builtin_mul_overflow(size, count, &total)) {
    throw RenderError("the repeated value is too large");
  }
  if (value.is_string()) {
    heap.check_text_size(total);
    heap.spend_bytes(total);
    std::string text;
    text.reserve(total);
    for (size_t i = 0; size > 0 && i < count; ++i) text += value.text();
    return make_string(heap, std::move(text), value.string().is_markup);
  }
  heap.check_num_items(total);
  heap.spend(static_cast<int64_t>(total));
  std::vector<Value> items;
  items.reserve(total);
  for (size_t i = 0; size > 0 && i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Type::LIST) ? make_list(heap, std::move(items))
                              : make_tuple(heap, std::move(items));
}

Value add(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return add_strings(heap, left, right);
  if (left.is_sequence() && left.type() == right.type()) return add_sequences(heap, left, right);
  if (left.is_string() || left.is_sequence()) {
    std::string name = type_name(left);
    throw RenderError("can only concatenate " + name + " (not \"" + type_name(right) + "\") to " +
                      name);
  }
  fail_operands(BinaryOperator::ADD, left, right);
}

}  // namespace

void check_defined(const Value& value) {
  if (value.is_undefined()) throw RenderError(value.as<UndefinedObject>().message);
}

std::string escaped(Heap& heap, const Value& value) {
  if (value.is_string() && value.string().is_markup) return value.text();
  std::string text = to_str(heap, value);
  heap.check_text_size(text.size() * 5);
  heap.spend_bytes(text.size());
  return escape_html(text);
}

Value binary_operation(RenderContext& context, BinaryOperator op, const Value& left,
                       const Value& right) {
  Heap& heap = context.heap;
  if (op == BinaryOperator::MOD && left.is_string()) return percent_format(heap, left, right);
  check_defined(left);
  check_defined(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) {
      return int_operation(op, left.as_int(), right.as_int());
    }
    return float_operation(op, left.as_double(), right.as_double());
  }
  if (op == BinaryOperator::ADD) return add(heap, left, right);
  if (op == BinaryOperator::MUL) {
    bool left_repeats = left.is_string() || left.is_sequence();
    bool right_repeats = right.is_string() || right.is_sequence();
    if (left_repeats && right.is_integral()) return repeat(heap, left, right.as_int());
    if (right_repeats && left.is_integral()) return repeat(heap, right, left.as_int());
    if (left_repeats || right_repeats) {
      throw RenderError("can't multiply sequence by non-int of type '" +
                        type_name(left_repeats ? right : left) + "'");
    }
  }
  fail_operands(op, left, right);
}

Value negate(const Value& value) {
  check_defined(value);
  if (value.is(Type::FLOAT)) return Value::real(-value.as_double());
  if (!value.is_integral()) {
    throw RenderError("bad operand type for unary -: '" + type_name(value) + "'");
  }
  if (value.as_int() == INT64_MIN) fail_overflow();
  return Value::integer(-value.as_int());
}

Value positive(const Value& value) {
  check_defined(value);
  if (value.is(Type::FLOAT)) return value;
  if (!value.is_integral()) {
    throw RenderError("bad operand type for unary +: '" + type_name(value) + "'");
  }
  return Value::integer(value.as_int());
}

bool compare(RenderContext& context, CompareOperator op, const Value& left, const Value& right) {
  Heap& heap = context.heap;
  switch (op) {
    case CompareOperator::EQ:
      return equal(heap, left, right);
    case CompareOperator::NE:
      return !equal(heap, left, right);
    case CompareOperator::LT:
      return order(heap, left, right, "<") == -1;
    case CompareOperator::LE: {
      int result = order(heap, left, right, "<=");
      return result == -1 || result == 0;
    }
    case CompareOperator::GT:
      return order(heap, left, right, ">") == 1;
    case CompareOperator::GE: {
      int result = order(heap, left, right, ">=");
      return result == 1 || result == 0;
    }
    case CompareOperator::IN:
      return contains(heap, right, left);
    case CompareOperator::NOT_IN:
      return !contains(heap, right, left);
  }
  return false;
}

}  // namespace pinfer::jinja
