# cmake -D SOURCE_DIR= -D WORK_DIR= -D CONSUMERS=a,b [-D BUILD_DIR=] [-D TRACE_ONLY=ON] ... -P this
# Installs BUILD_DIR (built here without the engine where there is none) into a fresh prefix, then
# configures, builds and runs each consumer against that prefix.

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "exit status ${status}: ${command}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

set(prefix ${WORK_DIR}/prefix)
set(tools -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
    -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D CMAKE_BUILD_TYPE=${BUILD_TYPE})
if(SANITIZE)
  list(APPEND tools -D CMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()
file(REMOVE_RECURSE ${WORK_DIR}/prefix ${WORK_DIR}/consumer)

if(NOT BUILD_DIR)
  set(BUILD_DIR ${WORK_DIR}/build)
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${BUILD_DIR} ${tools} -D EPILOGUE_ENGINE=OFF
      -D EPILOGUE_TESTS=OFF)
  run(${CMAKE_COMMAND} --build ${BUILD_DIR})
endif()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

string(REPLACE "," ";" consumers "${CONSUMERS}")
foreach(consumer IN LISTS consumers)
  set(build ${WORK_DIR}/consumer/${consumer})
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/${consumer} -B ${build} ${tools}
      -D CMAKE_PREFIX_PATH=${prefix})
  run(${CMAKE_COMMAND} --build ${build})
  run(${build}/consumer)
  message(STATUS "${consumer}: ${out}")
endforeach()

# Asking a trace-only installation for the engine is answered, not met with missing targets.
if(TRACE_ONLY)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/engine -B ${WORK_DIR}/consumer/engine
            ${tools} -D CMAKE_PREFIX_PATH=${prefix}
    RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(status EQUAL 0 OR NOT out MATCHES "holds the[ \n]+trace half only")
    message(FATAL_ERROR "expected a refusal that names the trace half, got ${status}:\n${out}")
  endif()
endif()

# The command, with its man page and completions: what they say is what this command prints.
foreach(file bin/epilogue share/man/man1/epilogue.1.gz share/fish/vendor_completions.d/epilogue.fish
             share/doc/epilogue/copyright)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "was not installed: ${prefix}/${file}")
  endif()
endforeach()
run(${prefix}/bin/epilogue help-files bash)
file(READ ${prefix}/share/bash-completion/completions/epilogue completion)
if(NOT completion STREQUAL out)
  message(FATAL_ERROR "the installed completion for bash is not this command's")
endif()
