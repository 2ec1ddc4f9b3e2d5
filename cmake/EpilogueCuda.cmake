# Decides EPILOGUE_CUDA_FOLDER, the folder of src/backend that defines the CUDA functions of
# core/backend.h: `cuda` or `no_cuda`. One folder or the other; no #ifdef anywhere.
#   AUTO  on where a toolkit and a device are both there: who has no GPU never waits for it
#   ON    needs a toolkit; the programs run on machines without a GPU too
#   OFF

if(NOT EPILOGUE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "EPILOGUE_CUDA: expected AUTO, ON or OFF, got '${EPILOGUE_CUDA}'")
endif()

set(EPILOGUE_CUDA_FOLDER no_cuda)
if(EPILOGUE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: off (EPILOGUE_CUDA=OFF)")
  return()
endif()

find_package(CUDAToolkit 12.8 QUIET)
set(epilogue_has_toolkit FALSE)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  set(epilogue_has_toolkit TRUE)
  set(epilogue_toolkit "CUDA toolkit ${CUDAToolkit_VERSION}")
else()
  set(epilogue_toolkit "no CUDA toolkit of version 12.8 or newer with nvcc found")
endif()
# The driver's device files; the last is WSL's.
set(epilogue_has_device FALSE)
foreach(file /dev/nvidia0 /dev/nvidiactl /dev/dxg)
  if(EXISTS ${file})
    set(epilogue_has_device TRUE)
  endif()
endforeach()

if(EPILOGUE_CUDA STREQUAL "ON" AND NOT epilogue_has_toolkit)
  message(FATAL_ERROR "EPILOGUE_CUDA=ON: ${epilogue_toolkit}; set CUDAToolkit_ROOT, or configure "
                      "with EPILOGUE_CUDA=OFF")
endif()
if(NOT epilogue_has_toolkit)
  message(STATUS "CUDA backend: off (${epilogue_toolkit})")
elseif(EPILOGUE_CUDA STREQUAL "AUTO" AND NOT epilogue_has_device)
  message(STATUS "CUDA backend: off (${epilogue_toolkit}, but no device; EPILOGUE_CUDA=ON builds it "
                 "all the same)")
else()
  set(EPILOGUE_CUDA_FOLDER cuda)
  message(STATUS "CUDA backend: on (${epilogue_toolkit})")
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  # Hopper's machine code, and PTX for everything from Ampere on.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual)
  enable_language(CUDA)
endif()
