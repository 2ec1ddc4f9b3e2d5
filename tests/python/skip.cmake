# cmake -D REASON=FILE -P this: says why the Python tests do not run.
set(reason "the build has EPILOGUE_PYTHON=OFF")
if(EXISTS "${REASON}")
  file(STRINGS "${REASON}" lines)
  list(JOIN lines " " reason)
endif()
message("skipped: ${reason}")
