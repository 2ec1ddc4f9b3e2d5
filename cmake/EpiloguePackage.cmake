# `make package` and `cpack -G DEB`: one Debian package, `epilogue`, of the component `command`. The
# libraries are not in it (docs/adr/0008-debian-package.md).

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL command)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME epilogue)
set(CPACK_PACKAGE_VENDOR "the epilogue contributors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${EPILOGUE_MAINTAINER})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "profiler trace analyser")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Says what a trace of torch.profiler means: what bounds a run, where the device
idles and why, what could be fused and what that would save; as text, JSON or
one HTML page.")
if(EPILOGUE_ENGINE)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "profiler trace analyser, and an engine that fuses MLPs")
  string(APPEND CPACK_DEBIAN_PACKAGE_DESCRIPTION " Its own engine runs MLPs eager and fused on the CPU;
it profiles, compiles and trains them.")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS dataset-fashion-mnist)  # for tour and train
endif()
include(CPack)
