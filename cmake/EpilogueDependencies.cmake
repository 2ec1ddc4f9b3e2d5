# The libraries that every build needs. All that this machine lacks are in one error, with the line that installs them.

set(epi_missing "")

# epi_dependency(<debian package> <name> ...): find_package(<name> ...), without an error of its own. A macro, because
# what find_package sets belongs to the caller.
macro(epi_dependency debian name)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    list(APPEND epi_missing ${debian})
  endif()
endmacro()

epi_dependency(libfmt-dev fmt)
epi_dependency(zlib1g-dev ZLIB)
epi_dependency(libisal-dev ISAL)
epi_dependency(nlohmann-json3-dev nlohmann_json)
epi_dependency(libsimdjson-dev simdjson)
epi_dependency(libsqlite3-dev SQLite3)
epi_dependency(libcli11-dev CLI11)
if(EPILOGUE_ENGINE)
  epi_dependency(libhwy-dev hwy)
endif()
epi_dependency(pkgconf PkgConfig)
if(PkgConfig_FOUND)
  # The compiled form of cpp-httplib, with the definitions that it was compiled with, comes from pkg-config alone.
  pkg_check_modules(HTTPLIB QUIET IMPORTED_TARGET GLOBAL cpp-httplib)
endif()
if(NOT HTTPLIB_FOUND)
  list(APPEND epi_missing libcpp-httplib-dev)
endif()
if(EPILOGUE_PYTHON)
  # A wheel of the stable ABI needs another component (python/CMakeLists.txt).
  epi_dependency(python3-dev Python 3.11 COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
endif()

if(epi_missing)
  list(JOIN epi_missing " " epi_missing)
  # Indented lines are printed as they are.
  message(FATAL_ERROR "expected the libraries that epilogue is built with (scripts/packages.txt), got none of these. "
                      "On Debian or Ubuntu, as root:\n  apt-get install ${epi_missing}")
endif()
find_package(Threads REQUIRED)
