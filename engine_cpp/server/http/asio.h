// Boost.Asio with coroutines. <utility> first: its headers of Debian 12 (1.74) forget it.
#pragma once

// That version knows of coroutines with gcc alone; clang has the same ones.
#if defined(__clang__) && defined(__cpp_impl_coroutine)
#define BOOST_ASIO_HAS_CO_AWAIT 1
#define BOOST_ASIO_HAS_STD_COROUTINE 1
#endif

// clang-format off
#include <utility>
#include <boost/asio.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
// clang-format on
