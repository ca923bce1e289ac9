// The tests of templates: `value is name`.
#include "template/builtins/convert.h"
#include "template/builtins/operators.h"
#include "template/text/unicode.h"
#include "template/text/utf8.h"
#include "template/value/compare.h"
#include "template/value/iterate.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

bool is_case(std::string_view text, CharClass wanted, CharClass unwanted) {
  bool found = false;
  for (char32_t c : to_code_points(text)) {
    if (is_in_class(c, unwanted) || is_in_class(c, CharClass::TITLE)) return false;
    found |= is_in_class(c, wanted);
  }
  return found;
}

template <bool (*kPredicate)(const Value&)>
bool test_value(RenderContext&, const Value& input, Arguments& arguments) {
  bind_arguments("test", arguments, {});
  return kPredicate(input);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is(Type::BOOL); }
bool is_false(const Value& value) { return value.is(Type::BOOL) && !value.as_bool(); }
bool is_true(const Value& value) { return value.is(Type::BOOL) && value.as_bool(); }
bool is_integer(const Value& value) { return value.is(Type::INT); }
bool is_float(const Value& value) { return value.is(Type::FLOAT); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_markup(const Value& value) { return value.is_string() && value.string().is_markup; }

bool is_sequence(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is(Type::RANGE) ||
         value.is_undefined();
}

bool is_callable(const Value& value) {
  switch (value.type()) {
    case Type::MACRO:
    case Type::FUNCTION:
    case Type::METHOD:
    case Type::JOINER:
    case Type::LOOP:
    case Type::UNDEFINED:
      return true;
    default:
      return false;
  }
}

template <CharClass kWanted, CharClass kUnwanted>
bool test_case(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("test", arguments, {});
  std::string text = to_str(context.heap, input);
  context.heap.spend_bytes(text.size() * 4);
  return is_case(text, kWanted, kUnwanted);
}

bool has_remainder(RenderContext& context, const Value& input, const Value& divisor,
                   int64_t remainder) {
  Value rest = binary_operation(context, BinaryOperator::MOD, input, divisor);
  return equal(context.heap, rest, Value::integer(remainder));
}

template <int kRemainder>
bool test_parity(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("test", arguments, {});
  return has_remainder(context, input, Value::integer(2), kRemainder);
}

bool test_divisibleby(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("divisibleby", arguments, {"num"}, 1);
  return has_remainder(context, input, bound[0], 0);
}

template <CompareOperator kOperator>
bool test_compare(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("test", arguments, {"other"}, 1);
  return compare(context, kOperator, input, bound[0]);
}

bool test_sameas(RenderContext&, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("sameas", arguments, {"other"}, 1);
  return input.is_same(bound[0]);
}

bool test_filter(RenderContext&, const Value& input, Arguments& arguments) {
  bind_arguments("filter", arguments, {});
  return input.is_string() && find_filter(input.text()) != nullptr;
}

bool test_test(RenderContext&, const Value& input, Arguments& arguments) {
  bind_arguments("test", arguments, {});
  return input.is_string() && find_test(input.text()) != nullptr;
}

constexpr Test kTests[] = {
    {"odd", test_parity<1>},
    {"even", test_parity<0>},
    {"divisibleby", test_divisibleby},
    {"defined", test_value<is_defined>},
    {"undefined", test_value<is_undefined>},
    {"filter", test_filter},
    {"test", test_test},
    {"none", test_value<is_none>},
    {"boolean", test_value<is_boolean>},
    {"false", test_value<is_false>},
    {"true", test_value<is_true>},
    {"integer", test_value<is_integer>},
    {"float", test_value<is_float>},
    {"lower", test_case<CharClass::LOWER, CharClass::UPPER>},
    {"upper", test_case<CharClass::UPPER, CharClass::LOWER>},
    {"string", test_value<is_string>},
    {"mapping", test_value<is_mapping>},
    {"number", test_value<is_number>},
    {"sequence", test_value<is_sequence>},
    {"iterable", test_value<is_iterable>},
    {"callable", test_value<is_callable>},
    {"sameas", test_sameas},
    {"escaped", test_value<is_markup>},
    {"in", test_compare<CompareOperator::IN>},
    {"==", test_compare<CompareOperator::EQ>},
    {"eq", test_compare<CompareOperator::EQ>},
    {"equalto", test_compare<CompareOperator::EQ>},
    {"!=", test_compare<CompareOperator::NE>},
    {"ne", test_compare<CompareOperator::NE>},
    {">", test_compare<CompareOperator::GT>},
    {"gt", test_compare<CompareOperator::GT>},
    {"greaterthan", test_compare<CompareOperator::GT>},
    {"ge", test_compare<CompareOperator::GE>},
    {">=", test_compare<CompareOperator::GE>},
    {"<", test_compare<CompareOperator::LT>},
    {"lt", test_compare<CompareOperator::LT>},
    {"lessthan", test_compare<CompareOperator::LT>},
    {"<=", test_compare<CompareOperator::LE>},
    {"le", test_compare<CompareOperator::LE>},
};

}  // namespace

std::span<const Test> all_tests() { return kTests; }

}  // namespace pinfer::jinja
