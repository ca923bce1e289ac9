#include "server/api_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace pinfer::server {
namespace {

TEST(ApiKeys, NoneAreRequiredAtFirst) { EXPECT_FALSE(ApiKeys().are_required()); }

TEST(ApiKeys, AcceptsEachKeyAndNothingElse) {
  ApiKeys keys;
  keys.load({"alpha", "beta"}, "");
  EXPECT_TRUE(keys.are_required());
  for (const char* good : {"Bearer alpha", "bearer beta", "BEARER  alpha ", "Bearer \talpha"}) {
    EXPECT_TRUE(keys.accept(good)) << good;
  }
  for (const char* bad : {"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa",
                          "Bearer ALPHA", "Basic alpha", "Bearer alpha beta", "Bearer\talpha"}) {
    EXPECT_FALSE(keys.accept(bad)) << bad;
  }
  EXPECT_FALSE(keys.accept("Bearer " + std::string(1 << 20, 'a')));
}

TEST(ApiKeys, ReadsAFile) {
  const std::string path = testing::TempDir() + "keys_" + std::to_string(::getpid());
  std::ofstream(path) << "# of the team\n\n  gamma  \r\ndelta";
  ApiKeys keys;
  keys.load({"alpha"}, path);
  EXPECT_TRUE(keys.accept("Bearer alpha"));
  EXPECT_TRUE(keys.accept("Bearer gamma"));
  EXPECT_TRUE(keys.accept("Bearer delta"));
  EXPECT_FALSE(keys.accept("Bearer # of the team"));
  std::ofstream(path) << "# nothing\n";
  EXPECT_THROW(keys.load({"alpha"}, path), std::runtime_error);
  EXPECT_TRUE(keys.accept("Bearer gamma"));  // the earlier ones stay
  ::unlink(path.c_str());
  EXPECT_THROW(keys.load({}, path), std::runtime_error);
}

TEST(ApiKeys, RefusesAnEmptyKey) {
  ApiKeys keys;
  EXPECT_THROW(keys.load({"alpha", ""}, ""), std::runtime_error);
  EXPECT_THROW(keys.load({"  "}, ""), std::runtime_error);
}

}  // namespace
}  // namespace pinfer::server
