/* libpinfer.so of a wheel: nothing of its own, see CMakeLists.txt. */
typedef int pinfer_plain_name;
