# What `cmake --install` installs, by component:
#   Runtime      the program and libpinfer.so.1; manual page, completion, systemd unit, licence
#   Development  headers, libpinfer.so and libpinfer.a, CMake package, pkg-config files
#   wheel        (under scikit-build-core only) the program, the package's lib/ and include/, manual
#                pages and completion
# packaging/package.py makes packages of the first two: what they hold is written here alone.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pinfer)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/pinferConfig.cmake.in pinferConfig.cmake
                              INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(pinferConfigVersion.cmake COMPATIBILITY SameMajorVersion)
set(package_files ${CMAKE_CURRENT_BINARY_DIR}/pinferConfig.cmake
                  ${CMAKE_CURRENT_BINARY_DIR}/pinferConfigVersion.cmake)

# Written by packaging/man_pages.py from the programs' own descriptions; here they get the version.
foreach(page pinfer pinfer-export)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/../man/${page}.1.in ${page}.1 @ONLY)
endforeach()

# install_shell_files(PROGRAM SHARE ARGUMENTS...): manual page and completion of a program, where
# shells and man look for them below a share/ folder.
function(install_shell_files program share)
  set(completion ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../completion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${program}.1 DESTINATION ${share}/man/man1 ${ARGN})
  install(FILES ${completion}/${program}.bash RENAME ${program}
          DESTINATION ${share}/bash-completion/completions ${ARGN})
  install(FILES ${completion}/_${program} DESTINATION ${share}/zsh/site-functions ${ARGN})
endfunction()

if(PINFER_BUILD_CLI)
  install(TARGETS pinfer_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT Runtime)
  install_shell_files(pinfer ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT Runtime)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/../systemd/pinfer@.service
          DESTINATION lib/systemd/system COMPONENT Runtime)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT Runtime)
install(TARGETS pinfer_shared EXPORT pinferShared
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT Runtime NAMELINK_COMPONENT Development
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY engine_cpp/include/pinfer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT Development)
install(EXPORT pinferShared NAMESPACE pinfer:: FILE pinferSharedTargets.cmake
        DESTINATION ${package_dir} COMPONENT Development)
install(FILES ${package_files} DESTINATION ${package_dir} COMPONENT Development)

# Paths from where the file lies, so that a tree can be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH PREFIX_FROM_PKGCONFIG ${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH INCLUDEDIR_FROM_PKGCONFIG ${pkgconfig_dir} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/pinfer.pc.in pinfer.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pinfer.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Development)

if(TARGET pinfer_static)
  install(TARGETS pinfer_static EXPORT pinferStatic
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT pinferStatic NAMESPACE pinfer:: FILE pinferStaticTargets.cmake
          DESTINATION ${package_dir} COMPONENT Development)
  set_target_properties(pinfer_static PROPERTIES EXPORT_NAME pinfer_static)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/pinfer-static.pc.in pinfer-static.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pinfer-static.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Development)
endif()

# The wheel: no links in it; the CMake package knows libpinfer.so.1. Only by its component: the same
# tree installs for the system, too.
if(SKBUILD)
  set(wheel COMPONENT wheel EXCLUDE_FROM_ALL)
  install(TARGETS pinfer_cli RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} ${wheel})
  install(TARGETS pinfer_shared EXPORT pinferWheel
          LIBRARY DESTINATION pinfer/lib ${wheel} NAMELINK_SKIP
          INCLUDES DESTINATION pinfer/include)
  install(TARGETS pinfer_plain_name LIBRARY DESTINATION pinfer/lib ${wheel})
  install(EXPORT pinferWheel NAMESPACE pinfer:: FILE pinferSharedTargets.cmake
          DESTINATION pinfer/lib/cmake/pinfer ${wheel})
  install(FILES ${package_files} DESTINATION pinfer/lib/cmake/pinfer ${wheel})
  install(DIRECTORY engine_cpp/include/pinfer DESTINATION pinfer/include ${wheel})
  install_shell_files(pinfer ${SKBUILD_DATA_DIR}/share ${wheel})
  install_shell_files(pinfer-export ${SKBUILD_DATA_DIR}/share ${wheel})
  install(FILES runtime/package_init.py DESTINATION pinfer RENAME __init__.py ${wheel})
endif()
