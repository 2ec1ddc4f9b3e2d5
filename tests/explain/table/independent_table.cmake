# Writes random traces with their tables and lets the script judge them; then a table with one wrong
# number, which it must reject.
file(MAKE_DIRECTORY ${OUT})

function(judge trace table expected)
  execute_process(COMMAND ${PYTHON} ${SCRIPT} ${trace} ${table}
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL expected)
    message(FATAL_ERROR "${trace} ${table}: expected exit ${expected}, got ${code}\n${text}")
  endif()
endfunction()

foreach(seed RANGE 1 5)
  execute_process(COMMAND ${WRITER} ${seed} ${OUT} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "the writer failed for seed ${seed}: ${code}")
  endif()
  judge(${OUT}/${seed}.json.gz ${OUT}/${seed}.table.json 0)
  judge(${OUT}/${seed}.json ${OUT}/${seed}.shapes.json 0)
endforeach()

file(READ ${OUT}/1.table.json table)
foreach(field self_cpu_us cpu_total_us self_device_us device_total_us flops count
              self_cpu_memory_bytes)
  string(REGEX MATCH "\"${field}\": -?[0-9]+" first "${table}")
  if(first STREQUAL "")
    message(FATAL_ERROR "no ${field} in the table")
  endif()
  string(FIND "${table}" "${first}" at)
  string(LENGTH "${first}" length)
  math(EXPR behind "${at} + ${length}")
  string(SUBSTRING "${table}" 0 ${behind} head)
  string(SUBSTRING "${table}" ${behind} -1 tail)
  file(WRITE ${OUT}/wrong.json "${head}7${tail}")
  judge(${OUT}/1.json ${OUT}/wrong.json 1)
endforeach()
