# libpinfer.a, target pinfer::pinfer_static: one object that holds the engine and all it uses.
#
# The functions of the interface are its only global names, so that it can be linked beside other
# copies of what it contains (OpenSSL's hashes, nlohmann-json's templates). Therefore the objects
# are linked into one first, with what nothing reaches left out, and its other names made local.

# Names of the interface: the lines of exports.map that hold one.
file(READ ${CMAKE_CURRENT_SOURCE_DIR}/exports.map exports)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS exports.map)
string(REGEX MATCHALL "\n    pinfer_[a-z_]+" interface "${exports}")
list(TRANSFORM interface STRIP)
list(JOIN interface "\n" names)
file(CONFIGURE OUTPUT static_library_names.txt CONTENT "@names@\n" @ONLY)

# An "executable" for CMake, which then finds every library that belongs to it.
add_executable(pinfer_object EXCLUDE_FROM_ALL $<TARGET_OBJECTS:pinfer_engine>)
set_target_properties(pinfer_object PROPERTIES SUFFIX .o)
target_link_libraries(pinfer_object PRIVATE pinfer_engine)
list(TRANSFORM interface PREPEND "-Wl,-u," OUTPUT_VARIABLE roots)
# Groups (COMDAT) are dissolved: a group that another object has too would be thrown away in a later
# link, with the names in it that are local here. Common symbols get their place (-d).
target_link_options(pinfer_object PRIVATE -r -nostdlib -Wl,-d -Wl,--gc-sections
                    -Wl,--force-group-allocation ${roots})

# In two steps, since objcopy makes local what is global or weak, but not what is unique in a process
# (STB_GNU_UNIQUE: static variables of templates).
set(object ${CMAKE_CURRENT_BINARY_DIR}/pinfer_static.o)
add_custom_command(
  OUTPUT ${object}
  COMMAND ${CMAKE_OBJCOPY} --strip-debug --wildcard "--weaken-symbol=_Z*"
          $<TARGET_FILE:pinfer_object> ${object}
  COMMAND ${CMAKE_OBJCOPY}
          --keep-global-symbols=${CMAKE_CURRENT_BINARY_DIR}/static_library_names.txt ${object}
  DEPENDS pinfer_object ${CMAKE_CURRENT_BINARY_DIR}/static_library_names.txt
  COMMENT "Making local what is not of the interface" VERBATIM)
add_library(pinfer_static STATIC ${object})
add_library(pinfer::pinfer_static ALIAS pinfer_static)
set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
# C: a program in C links it without a C++ compiler.
set_target_properties(pinfer_static PROPERTIES OUTPUT_NAME pinfer LINKER_LANGUAGE C)
target_include_directories(pinfer_static INTERFACE
                           $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>)
target_link_libraries(pinfer_static INTERFACE $<$<LINK_LANGUAGE:C>:stdc++> Threads::Threads
                      ${CMAKE_DL_LIBS} m)
