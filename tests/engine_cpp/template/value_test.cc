// Values: dicts, comparison, and the bounds of the heap.
#include "template/value/value.h"

#include <gtest/gtest.h>

#include "template/value/compare.h"
#include "template/value/dict.h"
#include "template/value/show.h"

namespace pinfer::jinja {
namespace {

class ValueTest : public ::testing::Test {
 protected:
  Value text(const char* content) { return make_string(heap_, content); }
  static Value number(int64_t value) { return Value::integer(value); }

  Heap heap_{RenderLimits{}};
};

TEST_F(ValueTest, DictKeepsOrderAndFindsEqualKeys) {
  DictBuilder builder(heap_);
  for (int i = 0; i < 100; ++i) builder.set(number(i), number(i * i));
  builder.set("name", text("x"));
  builder.set(Value::real(5.0), text("five"));  // equals the integer 5: same place
  Value dict = builder.build();
  EXPECT_EQ(dict.dict().size(), 101u);
  EXPECT_EQ(dict.dict().find(heap_, number(5))->text(), "five");
  EXPECT_EQ(dict.dict().find(heap_, Value::boolean(true))->as_int(), 1);
  EXPECT_EQ(dict.dict().find("name")->text(), "x");
  EXPECT_EQ(dict.dict().find("nothing"), nullptr);
  EXPECT_EQ(dict.dict().entries()[5].first.as_int(), 5);
}

TEST_F(ValueTest, UnhashableKeysAreRefused) {
  DictBuilder builder(heap_);
  Value list = make_list(heap_, {});
  EXPECT_THROW(builder.set(list, number(1)), RenderError);
  EXPECT_THROW(builder.set(make_tuple(heap_, {list}), number(1)), RenderError);
}

TEST_F(ValueTest, NumbersCompareExactly) {
  EXPECT_TRUE(equal(heap_, number(1), Value::boolean(true)));
  EXPECT_FALSE(equal(heap_, number((int64_t{1} << 53) + 1), Value::real(9007199254740992.0)));
  EXPECT_TRUE(less(heap_, number(INT64_MAX), Value::real(9223372036854775808.0)));
  EXPECT_TRUE(less(heap_, Value::real(-1e300), number(INT64_MIN)));
  Value nan = Value::real(0.0 / 0.0 * 0.0);
  EXPECT_FALSE(less(heap_, number(1), nan));
  EXPECT_FALSE(equal(heap_, nan, nan));
}

TEST_F(ValueTest, MixedTypesHaveNoOrder) {
  EXPECT_THROW(less(heap_, number(1), text("a")), RenderError);
  EXPECT_THROW(less(heap_, Value::none(), Value::none()), RenderError);
}

TEST_F(ValueTest, MemoryIsGivenBack) {
  size_t before = heap_.memory_bytes();
  {
    std::vector<Value> items;
    for (int i = 0; i < 100; ++i) items.push_back(text("some longer text than fits in place"));
    Value list = make_list(heap_, items);
    EXPECT_GT(heap_.memory_bytes(), before + 100 * 35);
  }
  EXPECT_EQ(heap_.memory_bytes(), before);
}

TEST_F(ValueTest, LimitsThrowAndLeaveTheCountRight) {
  RenderLimits limits;
  limits.max_memory_bytes = 1000;
  Heap small(limits);
  EXPECT_THROW(make_string(small, std::string(2000, 'x')), RenderError);
  EXPECT_EQ(small.memory_bytes(), 0u);
  limits.max_steps = 10;
  Heap quick(limits);
  EXPECT_THROW(for (int i = 0; i < 20; ++i) quick.spend(1), RenderError);
}

TEST_F(ValueTest, ShowsAsPythonDoes) {
  Value list = make_list(heap_, {number(1), text("it's"), Value::none(), Value::real(2)});
  EXPECT_EQ(to_str(heap_, list), "[1, \"it's\", None, 2.0]");
  EXPECT_EQ(to_str(heap_, make_undefined_name(heap_, "x")), "");
  EXPECT_EQ(to_str(heap_, make_tuple(heap_, {Value::boolean(false)})), "(False,)");
}

}  // namespace
}  // namespace pinfer::jinja
