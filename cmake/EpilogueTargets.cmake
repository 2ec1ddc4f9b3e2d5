# epi_layer(<name> SOURCES a.cpp ... [DEPENDS layer ...] [LINKS lib ...] [PUBLIC_LINKS lib ...]
#           [INLINES] [QUICK | PLAIN | KERNELS] [QUICK_SOURCES a.cpp ...])
# One folder of src/ = one static library = one layer. DEPENDS names layers, the only way down. INLINES: its speed
# hangs on calls of small functions (epi_inlining_flags). QUICK: the time to compile it counts, not its speed
# (epi_quick_flags). PLAIN: -O2, which is the default without INLINES. KERNELS: what it computes takes most of a
# program's time; with INLINES it alone keeps -O3. QUICK_SOURCES: sources of the same layer that are QUICK by themselves.
# epi_test(<name> SOURCES a.cpp ... DEPENDS layer ... [LINKS lib ...] [LABELS l ...] [TIMEOUT s])
# A GoogleTest executable and its CTest entry.
#
# Sources are compiled several at a time: most of what a file costs is the headers that it includes. In
# CPU time with GCC 12 one by one costs twice to three times as much, with a precompiled header 1.5 to
# 1.7 times and the header. So names in unnamed namespaces differ within a library
# (scripts/check_definitions.py), and each file of tests has a namespace of its name. Tests have both: executables of few
# files are many.

option(EPILOGUE_UNITY "Compile several sources at a time; OFF compiles less after a small change" ON)
set(epi_unity_sources 32)

# The properties of a target whose sources may be compiled together.
function(epi_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${EPILOGUE_UNITY}
                                             UNITY_BUILD_BATCH_SIZE ${epi_unity_sources})
endfunction()

add_library(epi_flags INTERFACE)
target_compile_features(epi_flags INTERFACE cxx_std_20)
set(epi_cxx_flags -fno-math-errno -fno-semantic-interposition -fvisibility-inlines-hidden)
if(NOT SKBUILD)
  # Who installs with pip cannot act on a warning, and finding them takes time. Designated initialisers leave fields out
  # on purpose.
  list(APPEND epi_cxx_flags -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
endif()
target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${epi_cxx_flags}>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: std::string's operator+ is accused of overlapping copies.
  target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # GCC's own stable_sort calls what its library says is deprecated.
  target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects its own garbage from 128 MB on; 32 sources at a time need more, and 512 MB are there where they do.
  target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()
if(EPILOGUE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It takes a source that another one includes for a header.
  target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
# GCC bounds how much inlining may add to a translation unit. Sources compiled together share that bound: in the
# library that reads traces, functions of one line stayed calls and reading took 1.2 times as long.
set(epi_inlining_flags)
if(EPILOGUE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(epi_inlining_flags --param=inline-unit-growth=200 --param=large-unit-insns=200000)
endif()
if(PROJECT_IS_TOP_LEVEL)
  option(EPILOGUE_WERROR "Warnings are errors" OFF)
  if(EPILOGUE_WERROR)
    target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
endif()
if(EPILOGUE_SANITIZE)
  set(epi_sanitize_flags -fsanitize=${EPILOGUE_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_compile_options(epi_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${epi_sanitize_flags}>)
  target_link_options(epi_flags INTERFACE -fsanitize=${EPILOGUE_SANITIZE})
endif()

# For what runs once and only calls the library: compile time counts, not its own speed.
add_library(epi_quick_flags INTERFACE)
target_compile_options(epi_quick_flags INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
# For what calls kernels: -O3 takes a sixth more time to compile, and nothing runs faster by it.
add_library(epi_plain_flags INTERFACE)
target_compile_options(epi_plain_flags INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O2>)
# For tests: no loop of theirs is worth more than what its optimisation costs.
add_library(epi_test_flags INTERFACE)
target_compile_options(epi_test_flags INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O0>)

# epi_link_statically(): with EPILOGUE_STATIC_LIBRARIES, the archives there (scripts/wheel_libraries.sh) take the place of
# the shared libraries of the same version. Objects are the same in both cases, so that a wheel compiles nothing again.
function(epi_link_statically)
  if(NOT EPILOGUE_STATIC_LIBRARIES)
    return()
  endif()
  foreach(target fmt::fmt simdjson::simdjson hwy::hwy SQLite::SQLite3)
    if(TARGET ${target})
      string(REGEX REPLACE ".*::" "" library ${target})
      string(TOLOWER ${library} library)
      set(archive ${EPILOGUE_STATIC_LIBRARIES}/lib${library}.a)
      if(NOT EXISTS ${archive})
        message(FATAL_ERROR "EPILOGUE_STATIC_LIBRARIES: expected ${archive}, got none")
      endif()
      set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive})
      get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
      foreach(configuration IN LISTS configurations)
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${archive})
      endforeach()
    endif()
  endforeach()
endfunction()

set_property(GLOBAL PROPERTY EPILOGUE_LAYERS "")

# Settings of all sources of a layer.
function(epi_layer_sources target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEPENDS;LINKS;PUBLIC_LINKS")
  # Declarations of include/epilogue are visible beyond a shared library (each header says so), and what
  # the engine's library calls of the other: base, pointwise.
  set(visibility hidden)
  if(name MATCHES "^(base|pointwise)$")
    set(visibility default)
  endif()
  set_target_properties(
    ${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET ${visibility}
                         CUDA_VISIBILITY_PRESET ${visibility})
  epi_unity(${target})
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # Header-only and private: users of the installed package need not have it.
  list(TRANSFORM arg_LINKS REPLACE "^nlohmann_json::.*" "$<BUILD_INTERFACE:\\0>")
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:epi_flags> ${arg_LINKS})
  list(TRANSFORM arg_DEPENDS PREPEND epilogue_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${arg_PUBLIC_LINKS})
endfunction()

function(epi_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INLINES;QUICK;PLAIN;KERNELS" "" "SOURCES;QUICK_SOURCES;DEPENDS;LINKS;PUBLIC_LINKS")
  set(links DEPENDS ${arg_DEPENDS} LINKS ${arg_LINKS} PUBLIC_LINKS ${arg_PUBLIC_LINKS})
  add_library(epilogue_${name} STATIC ${arg_SOURCES})
  if(arg_QUICK_SOURCES)
    add_library(epilogue_${name}_quick OBJECT ${arg_QUICK_SOURCES})
    epi_layer_sources(epilogue_${name}_quick ${name} ${links})
    target_link_libraries(epilogue_${name}_quick PRIVATE epi_quick_flags)
    target_sources(epilogue_${name} PRIVATE $<TARGET_OBJECTS:epilogue_${name}_quick>)
  endif()
  if(arg_INLINES)
    target_compile_options(epilogue_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${epi_inlining_flags}>)
  endif()
  if(arg_QUICK)
    target_link_libraries(epilogue_${name} PRIVATE $<BUILD_INTERFACE:epi_quick_flags>)
  elseif(arg_PLAIN OR (NOT arg_KERNELS AND NOT arg_INLINES))
    target_link_libraries(epilogue_${name} PRIVATE $<BUILD_INTERFACE:epi_plain_flags>)
  endif()
  add_library(epilogue::${name} ALIAS epilogue_${name})
  epi_layer_sources(epilogue_${name} ${name} ${links})
  set_target_properties(epilogue_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY EPILOGUE_LAYERS epilogue_${name})
endfunction()

# tests/support/test.h, compiled once for all tests. Sources of other flags (simd_fallback_test's) skip it. With ccache
# there is none: GCC's differs from build to build, and no object would be found again.
function(epi_precompile_test_header name)
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
    return()
  endif()
  if(NOT TARGET epi_test_header)
    add_library(epi_test_header OBJECT ${PROJECT_SOURCE_DIR}/tests/support/test_header.cpp)
    target_include_directories(epi_test_header PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(epi_test_header PRIVATE epi_flags epi_test_flags GTest::gtest_main)
    target_precompile_headers(epi_test_header PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/test.h)
  endif()
  target_precompile_headers(${name} REUSE_FROM epi_test_header)
endfunction()

function(epi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;DEPENDS;LINKS;LABELS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  list(TRANSFORM arg_DEPENDS PREPEND epilogue_)
  target_link_libraries(${name} PRIVATE epi_flags epi_test_flags ${arg_DEPENDS} ${arg_LINKS}
                                        GTest::gtest_main)
  epi_unity(${name})
  epi_precompile_test_header(${name})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  # Figures that an earlier process measured must not decide what a test sees.
  # The XML tells scripts/test_summary.py of single tests, skipped ones too: ctest sees the
  # executable only.
  set_tests_properties(
    ${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                       ENVIRONMENT "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/${name}.xml;EPILOGUE_CACHE_DIR=off")
endfunction()
