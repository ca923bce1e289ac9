#include "server/random_id.h"

#include <cstdio>
#include <random>

namespace pinfer::server {

std::string random_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return text;
}

}  // namespace pinfer::server
