# cmake --install: libraries, headers, the CMake package and the command.
# The package has two parts: `trace` (base, pointwise, trace, memory_snapshot, timeline, explain, sections, render, answer) and `engine` (the rest).
# Each part's config asks only for the packages that its own libraries link.

include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/epilogue)
get_property(all_layers GLOBAL PROPERTY EPILOGUE_LAYERS)
set(trace_layers epilogue_base epilogue_pointwise epilogue_trace epilogue_memory_snapshot epilogue_timeline
                 epilogue_explain epilogue_sections epilogue_render epilogue_answer)
set(engine_layers ${all_layers})
list(REMOVE_ITEM engine_layers ${trace_layers})

# find_dependency lines for every `package::target` that the layers link, in `out`.
function(epi_dependency_lines out)
  set(packages "")
  foreach(layer IN LISTS ARGN)
    get_target_property(links ${layer} LINK_LIBRARIES)
    foreach(link IN LISTS links)
      if(link MATCHES "^([A-Za-z0-9_]+)::" AND NOT CMAKE_MATCH_1 STREQUAL "epilogue")
        list(APPEND packages ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endforeach()
  list(TRANSFORM packages REPLACE "^SQLite$" "SQLite3")
  list(TRANSFORM packages REPLACE "^CUDA$" "CUDAToolkit")  # the package of CUDA::cudart_static
  list(REMOVE_DUPLICATES packages)
  list(SORT packages)
  list(TRANSFORM packages REPLACE "(.+)" "find_dependency(\\1)")
  list(JOIN packages "\n" lines)
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# epilogue::trace_half and epilogue::epilogue: one name each for a part and all below it.
function(epi_umbrella name exported)
  add_library(${name} INTERFACE)
  add_library(epilogue::${exported} ALIAS ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${exported})
  target_link_libraries(${name} INTERFACE ${ARGN})
endfunction()

epi_umbrella(epilogue_trace_half trace_half ${trace_layers})
epi_dependency_lines(EPILOGUE_TRACE_DEPENDENCIES ${trace_layers})
install(TARGETS ${trace_layers} epilogue_trace_half EXPORT epilogueTraceTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT trace)
install(EXPORT epilogueTraceTargets NAMESPACE epilogue:: DESTINATION ${package_folder}
        COMPONENT trace)
install(DIRECTORY include/epilogue/base include/epilogue/trace
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/epilogue COMPONENT trace)
install(FILES include/epilogue/trace.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/epilogue
        COMPONENT trace)

if(EPILOGUE_ENGINE)
  epi_umbrella(epilogue_all epilogue ${engine_layers} epilogue_trace_half)
  epi_dependency_lines(EPILOGUE_ENGINE_DEPENDENCIES ${engine_layers})
  install(TARGETS ${engine_layers} epilogue_all EXPORT epilogueEngineTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT engine)
  install(EXPORT epilogueEngineTargets NAMESPACE epilogue:: DESTINATION ${package_folder}
          COMPONENT engine)
  install(DIRECTORY include/epilogue DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT engine
          PATTERN base EXCLUDE PATTERN trace EXCLUDE PATTERN trace.h EXCLUDE)
endif()

include(EpilogueShared)

include(EpilogueCommandFiles)

# In a wheel: the command on the PATH. Data of a wheel lies below the environment; man and the shells find it
# there by the PATH.
if(SKBUILD)
  set(data ${SKBUILD_DATA_DIR}/share)
  # Libraries that auditwheel grafts are found from within a package alone: python/epilogue_command is one.
  set(EPILOGUE_COMMAND_FOLDER "" CACHE STRING "Package of a wheel that holds the command; empty: the scripts")
  set(command_folder ${SKBUILD_SCRIPTS_DIR})
  if(EPILOGUE_COMMAND_FOLDER)
    set(command_folder ${EPILOGUE_COMMAND_FOLDER})
  endif()
  install(PROGRAMS $<TARGET_FILE:epilogue> DESTINATION ${command_folder} COMPONENT python_command)
  install(FILES ${EPILOGUE_HELP_FILES}/epilogue.1.gz DESTINATION ${data}/man/man1 COMPONENT python_command)
  install(FILES ${EPILOGUE_HELP_FILES}/bash/epilogue DESTINATION ${data}/bash-completion/completions
          COMPONENT python_command)
  install(FILES ${EPILOGUE_HELP_FILES}/fish/epilogue.fish DESTINATION ${data}/fish/vendor_completions.d
          COMPONENT python_command)
  install(FILES ${EPILOGUE_HELP_FILES}/zsh/_epilogue DESTINATION ${data}/zsh/site-functions
          COMPONENT python_command)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/epilogueConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/cmake/epilogueConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/epilogueConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/epilogueConfig.cmake
              ${PROJECT_BINARY_DIR}/cmake/epilogueConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindISAL.cmake
        DESTINATION ${package_folder} COMPONENT trace)
