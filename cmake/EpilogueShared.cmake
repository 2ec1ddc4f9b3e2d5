# libepilogue_trace.so (base, pointwise, trace, memory_snapshot, timeline, explain, sections, render,
# answer) and libepilogue.so (the engine; it
# loads the first): the static libraries' own objects, linked once more. Whoever loads them in a
# process shares one thread pool, one allocator and the packed weights.
# What include/epilogue declares is exported (docs/abi.md); so is base, and what else of the trace half
# the engine calls, which is private to the two.

# The external libraries that these layers link, in `out`.
function(epi_external_links out)
  set(found "")
  foreach(layer IN LISTS ARGN)
    get_target_property(links ${layer} LINK_LIBRARIES)
    foreach(link IN LISTS links)
      string(REGEX REPLACE "^\\$<BUILD_INTERFACE:(.*)>$" "\\1" link "${link}")
      if(link MATCHES "::" AND NOT link MATCHES "^epilogue::")
        list(APPEND found ${link})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# epi_shared(<name> <file> <exported> <component> <layers>)
function(epi_shared name file exported component)
  add_library(${name} SHARED)
  add_library(epilogue::${exported} ALIAS ${name})
  foreach(layer IN LISTS ARGN)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${layer}>)
    if(TARGET ${layer}_quick)  # its QUICK_SOURCES
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:${layer}_quick>)
    endif()
  endforeach()
  epi_external_links(links ${ARGN})
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:epi_flags> ${links})
  target_link_options(${name} PRIVATE LINKER:--no-undefined)
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:include>)
  target_compile_features(${name} INTERFACE cxx_std_20)
  # Before 1.0 a minor version may change the ABI.
  set_target_properties(
    ${name} PROPERTIES OUTPUT_NAME ${file} EXPORT_NAME ${exported} LINKER_LANGUAGE CXX
                       VERSION ${PROJECT_VERSION}
                       SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                       INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${name} EXPORT epilogue_${component}_shared
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
  install(EXPORT epilogue_${component}_shared NAMESPACE epilogue:: DESTINATION ${package_folder}
          FILE epilogue_${component}_shared.cmake COMPONENT ${component})
endfunction()

epi_shared(epilogue_trace_shared epilogue_trace trace_shared trace ${trace_layers})
if(EPILOGUE_ENGINE)
  epi_shared(epilogue_shared epilogue shared engine ${engine_layers})
  target_link_libraries(epilogue_shared PUBLIC epilogue_trace_shared)
endif()
