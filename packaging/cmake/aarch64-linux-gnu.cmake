# Cross build for 64-bit Arm on Debian (preset cross-aarch64): g++-aarch64-linux-gnu, libraries that
# packaging/cross_sysroot.sh has fetched, and tests under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

find_program(PINFER_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(PINFER_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${PINFER_QEMU} -L /usr/aarch64-linux-gnu)
endif()

set(PINFER_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/cross-aarch64/sysroot)
set(CMAKE_FIND_ROOT_PATH ${PINFER_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT -L${PINFER_SYSROOT}/usr/lib/aarch64-linux-gnu)
endforeach()
