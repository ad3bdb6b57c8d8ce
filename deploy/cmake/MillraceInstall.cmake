# What `cmake --install` and `cpack` put where. Components:
#   program    bin/millrace, the libraries of lib/millrace that it opens itself,
#              documentation, list of dependencies
#   libraries  lib/millrace: shared libraries for systems without our packages
#   service    the systemd unit and its settings file
#   cuda       lib/millrace/libmillrace_cuda.so, where it was built; only by name
#   onednn     lib/millrace: the module of --graph-backend onednn, and oneDNN (55
#              MB); only by name
#   mpi        lib/millrace: the module of --tensor-parallel-size, where it was
#              built; only by name
# `cmake --install build/release` installs all but the libraries, which are the
# system's here; --component picks one.
include(GNUInstallDirs)

set(package_dir ${CMAKE_SOURCE_DIR}/deploy/package)
set(doc_dir share/doc/millrace)

# Found first where the component `libraries` is installed, else not there. The
# older tag (RPATH) also holds for what the libraries themselves need.
set_target_properties(millrace PROPERTIES
  INSTALL_RPATH "$ORIGIN/../lib/millrace")
target_link_options(millrace PRIVATE -Wl,--disable-new-dtags)
install(TARGETS millrace
        RUNTIME_DEPENDENCY_SET millrace_libraries
        RUNTIME DESTINATION bin COMPONENT program)

# The load tester comes along where it was built.
if(TARGET millrace-loadtest)
  set_target_properties(millrace-loadtest PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib/millrace")
  target_link_options(millrace-loadtest PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS millrace-loadtest OPTIONAL
          RUNTIME DESTINATION bin COMPONENT program)
endif()

# Opened while the program runs, so no loader finds them: they stand beside it in
# every kind of package.
set(millrace_sbom_options)
if(MILLRACE_STRUCTURED)
  install(PROGRAMS ${MILLRACE_XGRAMMAR_PREFIX}/lib/libxgrammar_bindings.so
                   ${MILLRACE_XGRAMMAR_PREFIX}/lib/libtvm_ffi.so
          DESTINATION lib/millrace COMPONENT program)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
       ${MILLRACE_XGRAMMAR_PREFIX}/lib)
  set(millrace_sbom_options "--wheels ${MILLRACE_XGRAMMAR_PREFIX}")
endif()

if(TARGET millrace_cuda)
  install(TARGETS millrace_cuda LIBRARY DESTINATION lib/millrace
          COMPONENT cuda OPTIONAL EXCLUDE_FROM_ALL)
endif()
if(TARGET millrace_onednn)
  set_target_properties(millrace_onednn PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS millrace_onednn
          LIBRARY DESTINATION lib/millrace COMPONENT onednn EXCLUDE_FROM_ALL)
  install(PROGRAMS $<TARGET_FILE:DNNL::dnnl> RENAME libdnnl.so.3
          DESTINATION lib/millrace COMPONENT onednn EXCLUDE_FROM_ALL)
endif()

if(TARGET millrace_mpi)
  install(TARGETS millrace_mpi LIBRARY DESTINATION lib/millrace
          COMPONENT mpi EXCLUDE_FROM_ALL)
endif()

# The C library stays the system's: a program must not bring its own loader.
install(RUNTIME_DEPENDENCY_SET millrace_libraries
        PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv)\\.so"
        LIBRARY DESTINATION lib/millrace COMPONENT libraries
                EXCLUDE_FROM_ALL)

install(FILES ${CMAKE_SOURCE_DIR}/README.md
        DESTINATION ${doc_dir} COMPONENT program)
install(FILES ${package_dir}/millrace.1
        DESTINATION share/man/man1 COMPONENT program)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/config/examples
        ${CMAKE_SOURCE_DIR}/deploy/observability
        DESTINATION ${doc_dir} COMPONENT program)

# Bases of external handlers, where the program looks for them.
install(FILES ${CMAKE_SOURCE_DIR}/handlers/external/python/millrace_handler.py
        ${CMAKE_SOURCE_DIR}/handlers/external/python/millrace_torchserve.py
        ${CMAKE_SOURCE_DIR}/handlers/external/python/millrace_wire.py
        ${CMAKE_SOURCE_DIR}/handlers/external/cpp/millrace_handler.h
        ${CMAKE_SOURCE_DIR}/handlers/external/proto/handler.proto
        DESTINATION share/millrace/handlers COMPONENT program)

# Versions and licences of all that the program is linked with.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
install(CODE "
  set(target \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc_dir}\")
  message(STATUS \"Installing: \${target}/sbom.spdx.json and dependencies.txt\")
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${package_dir}/sbom.py
            $<TARGET_FILE:millrace> --version ${PROJECT_VERSION}
            ${millrace_sbom_options}
            --installed \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/millrace\"
            --copyrights \${target}/copyrights
            --spdx \${target}/sbom.spdx.json --text \${target}/dependencies.txt
    COMMAND_ERROR_IS_FATAL ANY)
  " COMPONENT program)

# The unit names program and settings by their full paths, which only the install
# knows. The settings of /usr stand in /etc, those of another prefix below it.
install(CODE "
  set(millrace_etc \"\${CMAKE_INSTALL_PREFIX}/etc/millrace\")
  if(\"\${CMAKE_INSTALL_PREFIX}\" STREQUAL /usr)
    set(millrace_etc /etc/millrace)
  endif()
  set(target \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")
  message(STATUS \"Installing: \${target}/millrace.service\")
  configure_file(${CMAKE_SOURCE_DIR}/deploy/systemd/millrace.service.in
                 \${target}/millrace.service @ONLY)
  set(target \"\$ENV{DESTDIR}\${millrace_etc}/millrace.yaml\")
  if(EXISTS \${target})
    message(STATUS \"Kept as it is: \${target}\")
  else()
    message(STATUS \"Installing: \${target}\")
    configure_file(${CMAKE_SOURCE_DIR}/deploy/systemd/millrace.yaml
                   \${target} COPYONLY)
  endif()
  " COMPONENT service)

# ---- packages: cpack -G DEB and cpack -G TGZ --------------------------------

set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR "Millrace")
set(CPACK_PACKAGE_CONTACT "The Millrace developers <millrace@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
    "model server for language models and ONNX graphs on CPUs")
set(CPACK_PACKAGE_DESCRIPTION
    "Serves GGUF and Hugging Face language models and ONNX or PyTorch graphs "
    "behind the OpenAI and KServe v2 protocols, in one native process.")
list(JOIN CPACK_PACKAGE_DESCRIPTION "" CPACK_PACKAGE_DESCRIPTION)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_FILE_NAME
    "millrace-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PROJECT_CONFIG_FILE ${package_dir}/cpack_options.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Opened by `millrace pull` alone.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${package_dir}/conffiles ${package_dir}/postinst ${package_dir}/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
