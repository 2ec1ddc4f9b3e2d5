# Decides EPILOGUE_CUDA_FOLDER, the folder of src/backend that defines the functions of
# backend/cuda/cuda.h: `cuda` or `no_cuda`. One folder or the other; no #ifdef anywhere.

if(NOT EPILOGUE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "EPILOGUE_CUDA: expected AUTO, ON or OFF, got '${EPILOGUE_CUDA}'")
endif()

set(EPILOGUE_CUDA_FOLDER no_cuda)
if(EPILOGUE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: off (EPILOGUE_CUDA=OFF)")
else()
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(epilogue_toolkit "CUDA toolkit ${CUDAToolkit_VERSION} found")
  else()
    set(epilogue_toolkit "no CUDA toolkit found")
  endif()
  if(EPILOGUE_CUDA STREQUAL "ON")
    message(FATAL_ERROR
      "EPILOGUE_CUDA=ON: epilogue ${PROJECT_VERSION} has no CUDA backend yet (${epilogue_toolkit}). "
      "Configure with EPILOGUE_CUDA=AUTO or OFF.")
  endif()
  message(STATUS
    "CUDA backend: off (epilogue ${PROJECT_VERSION} has none yet; ${epilogue_toolkit})")
endif()
